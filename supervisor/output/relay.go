package output

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// relay passes a run's output to its attachments, and their input to the run.
type relay struct {
	terminal bool
	typing   chan struct{} // has one element while a write to the app's stdin or terminal is under way
	backlogs [2]*backlog   // of stdout and stderr; they guard themselves
	opened   chan struct{} // closed by setMaster, read by typeIn

	mu       sync.Mutex
	attached map[*Attachment]struct{} // guarded by mu
	ended    bool                     // guarded by mu; nothing can be attached any more
	// stdin and stdinRead, guarded by mu, are the two ends of the app's stdin, nil without
	// one. Each attachment has another descriptor of the first. The second is held so that writing to an app
	// that has closed its stdin is not an error.
	stdin, stdinRead *os.File
	// master, guarded by mu, is the terminal, nil before there is one.
	master *os.File
	// size, guarded by mu, is the terminal's latest size. It is set on master when there is one.
	size *unix.Winsize
}

func newRelay(terminal bool, all *backlogs) *relay {
	return &relay{
		terminal: terminal, backlogs: [2]*backlog{newBacklog(all), newBacklog(all)},
		attached: make(map[*Attachment]struct{}), opened: make(chan struct{}), typing: make(chan struct{}, 1),
	}
}

func (r *relay) setStdin(write, read *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stdin, r.stdinRead = write, read
}

// endStdin closes the relay's own end of the app's stdin.
func (r *relay) endStdin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	release(r.stdin)
	r.stdin = nil
}

func (r *relay) hasStdin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stdin != nil && !r.ended
}

// openInput returns another descriptor of the app's stdin or terminal, which is non-blocking.
func (r *relay) openInput() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.stdin
	if r.terminal {
		f = r.master
	}
	if f == nil || r.ended {
		return nil, os.ErrClosed
	}
	fd, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "input"), nil
}

// write writes what was typed, one attachment at a time: an app that has locked its stdin takes one thread. It returns
// false when the attachment has ended.
func (r *relay) write(to *os.File, text []byte, ended <-chan struct{}) bool {
	select {
	case r.typing <- struct{}{}: // also what was typed before the end
	default:
		select {
		case r.typing <- struct{}{}:
		case <-ended:
			return false
		}
	}
	defer func() { <-r.typing }()
	_, err := to.Write(text)
	return !os.IsTimeout(err) // an app that has just ended reads no more input
}

func (r *relay) setMaster(master *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.master = master
	if r.size != nil {
		_ = setSize(master, r.size)
	}
	close(r.opened)
}

// add attaches a, which gets what the backlogs get from now on. It returns false after end.
func (r *relay) add(a *Attachment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.attached[a] = struct{}{}
	for _, out := range a.senders {
		if out != nil {
			out.start()
		}
	}
	return true
}

func (r *relay) remove(a *Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.attached, a)
}

// end closes the app's stdin and ends each attachment once the last byte is in its pipe.
func (r *relay) end() {
	r.mu.Lock()
	r.ended = true
	release(r.stdin, r.stdinRead)
	attached := slices.Collect(maps.Keys(r.attached))
	r.mu.Unlock()
	for _, a := range attached {
		a.end()
	}
}

// resize sets the terminal's window size, or keeps it for a terminal that is not there yet.
func (r *relay) resize(width, height uint16) error {
	size := &unix.Winsize{Col: width, Row: height}
	r.mu.Lock()
	r.size = size
	master := r.master
	if r.ended {
		master = nil
	}
	r.mu.Unlock()
	if master == nil {
		return nil
	}
	return setSize(master, size) // without mu, since the app may hold it up
}

func setSize(master *os.File, size *unix.Winsize) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	return errors.Join(err, failed)
}
