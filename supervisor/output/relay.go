package output

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

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
	typists  []*Attachment            // guarded by mu; those whose input goes on, the earliest first
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

func (r *relay) addTypist(a *Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typists = append(r.typists, a)
}

func (r *relay) removeTypist(a *Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typists = slices.DeleteFunc(r.typists, func(other *Attachment) bool { return other == a })
}

// passOn passes on what is in the pipes of all attachments, the earliest attachment's first: what was typed before a
// later attachment was made comes before that one's text. The caller has taken its turn, which ends with the call. It
// returns false when nothing more comes from mine.
func (r *relay) passOn(mine *Attachment) bool {
	defer func() { <-r.typing }()
	r.mu.Lock()
	typists := slices.Clone(r.typists)
	r.mu.Unlock()
	more := true
	for _, a := range typists {
		if !a.pass() && a == mine {
			more = false
		}
	}
	return more
}

// takeTurn returns true when no other attachment writes. An attachment that has ended still gets its turn for what was
// typed before, unless the app does not take another's input for stallLimit.
func (r *relay) takeTurn(ended <-chan struct{}) bool {
	select {
	case r.typing <- struct{}{}:
		return true
	case <-ended:
	}
	late := time.NewTimer(stallLimit)
	defer late.Stop()
	select {
	case r.typing <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
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
