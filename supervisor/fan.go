package supervisor

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// stream is one of an app's two outputs; a terminal has stdout only.
type stream int

const (
	stdout stream = iota
	stderr
)

// fan hands a run's output to its attachments, and their input to the run.
type fan struct {
	terminal bool
	backlogs [2]*backlog // by stream

	mu      sync.Mutex
	members map[*Attachment]struct{}
	over    bool
	// stdin's ends: writers are opened anew from the one, so that none can
	// make another's non-blocking; the other is held so that writing to an app
	// that has closed its stdin is no error.
	stdin, stdinRead *os.File
	// master is the terminal, once there is one; size is set on it then.
	master *os.File
	size   *unix.Winsize
	opened chan struct{} // closed when master is set
}

func newFan(terminal bool) *fan {
	return &fan{
		terminal: terminal, backlogs: [2]*backlog{newBacklog(), newBacklog()},
		members: make(map[*Attachment]struct{}), opened: make(chan struct{}),
	}
}

func (f *fan) setStdin(write, read *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stdin, f.stdinRead = write, read
}

func (f *fan) setMaster(master *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master = master
	if f.size != nil {
		_ = setSize(master, f.size)
	}
	close(f.opened)
}

func (f *fan) add(a *Attachment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	f.members[a] = struct{}{}
	for _, out := range a.outlets {
		if out != nil {
			out.start()
		}
	}
	return true
}

func (f *fan) remove(a *Attachment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, a)
}

func (f *fan) list() []*Attachment {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Attachment, 0, len(f.members))
	for a := range f.members {
		all = append(all, a)
	}
	return all
}

// emit hands chunk on to the attachments. It waits for none, and keeps no chunk.
func (f *fan) emit(from stream, chunk []byte) { f.backlogs[from].add(chunk) }

// end lets the attachments end once they have had the last byte.
func (f *fan) end(exit Exit) {
	f.mu.Lock()
	f.over = true
	for _, file := range []*os.File{f.stdin, f.stdinRead} {
		if file != nil {
			_ = file.Close()
		}
	}
	f.mu.Unlock()
	for _, a := range f.list() {
		a.end(exit)
	}
}

// resize sets the terminal's window size, now or when there is one.
func (f *fan) resize(width, height uint16) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = &unix.Winsize{Col: width, Row: height}
	if f.master == nil || f.over {
		return nil
	}
	return setSize(f.master, f.size)
}

func setSize(master *os.File, size *unix.Winsize) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size)
	}); err != nil {
		return err
	}
	return failed
}
