package supervisor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// ErrDropped means that an attachment was too far behind with reading the app's
// output, or took none of what was left after the app's end: an app waits for none.
var ErrDropped = errors.New("dropped: output was not read in time")

// Attachment is a connection to an app's streams, for one run of the app: it
// ends when that run ends, also when the app is started again. Its methods
// may be called by several goroutines at once; its files belong to whoever
// attached, and may be closed early, for instance after they have been sent elsewhere.
type Attachment struct {
	// Stdout and Stderr are read ends of pipes: the app's output from the
	// attaching on, then end of file. Stderr is nil for a terminal.
	Stdout, Stderr *os.File
	// Stdin is the write end of a pipe to the app, nil when it has no open
	// stdin. Closing it does not end the app's input.
	Stdin *os.File
	// Terminal says that the app has a terminal: Stdin is its keyboard, and
	// Resize its window.
	Terminal bool

	fan     *fan
	outlets [2]*outlet
	input   *os.File // read end of a terminal's Stdin
	done    chan struct{}

	mu   sync.Mutex
	left int  // outlets that have not had their last byte, guarded by mu
	over bool // done is closed, guarded by mu
	exit Exit // guarded by mu
	err  error
}

// Attach connects to an app that starts or runs. The errors are ErrNoApp and
// ErrNotRunning, wrapped, or any other.
func (p *Pod) Attach(name string) (*Attachment, error) {
	app, err := p.find(name)
	if err != nil {
		return nil, err
	}
	app.mu.Lock()
	r := app.run
	app.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("app %q: %w", name, ErrNotRunning)
	}
	a, err := newAttachment(r.streams.fan)
	if err != nil {
		return nil, fmt.Errorf("attach to app %q: %w", name, err)
	}
	return a, nil
}

func newAttachment(f *fan) (*Attachment, error) {
	a := &Attachment{Terminal: f.terminal, fan: f, done: make(chan struct{})}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if !f.add(a) {
		return nil, errors.Join(ErrNotRunning, a.Close())
	}
	return a, nil
}

func (a *Attachment) open() error {
	outputs := []**os.File{&a.Stdout, &a.Stderr}
	if a.Terminal {
		outputs = outputs[:1]
	}
	for i, theirs := range outputs {
		w, r, err := pipe(true)
		if err != nil {
			return err
		}
		*theirs = r
		a.outlets[i] = newOutlet(w, a.fan.backlogs[i], a.fail, a.outletDone)
		a.left++
	}
	if a.Terminal {
		return a.openKeyboard()
	}
	return a.openStdin()
}

func (a *Attachment) openStdin() (err error) {
	a.fan.mu.Lock()
	defer a.fan.mu.Unlock()
	if a.fan.stdin == nil || a.fan.over {
		return nil
	}
	a.Stdin, err = reopen(a.fan.stdin, os.O_WRONLY)
	return err
}

// reopen opens a pipe's end anew: another open file description, whose
// flags are its own (open(2)).
func reopen(f *os.File, flag int) (again *os.File, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		again, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), flag, 0)
	})
	return again, errors.Join(controlErr, err)
}

// openKeyboard makes Stdin a pipe, since a terminal's master, once handed
// out, could read the app's output.
func (a *Attachment) openKeyboard() error {
	ours, theirs, err := pipe(false)
	if err != nil {
		return err
	}
	a.Stdin, a.input = theirs, ours
	go a.typeIn()
	return nil
}

// typeIn copies from the pipe to the terminal until either is closed.
func (a *Attachment) typeIn() {
	select {
	case <-a.fan.opened:
	case <-a.done:
		return
	}
	a.fan.mu.Lock()
	master := a.fan.master
	a.fan.mu.Unlock()
	for typed := make([]byte, 512); ; {
		n, err := a.input.Read(typed)
		if err != nil {
			return
		}
		// An app that ends now does not want it any more.
		_, _ = master.Write(typed[:n])
	}
}

// Done is closed when the app's run has ended and its last byte is in the
// pipes, or when the attachment has ended otherwise.
func (a *Attachment) Done() <-chan struct{} { return a.done }

// Err says, once Done is closed, why the attachment ended: nil because the
// app's run did, ErrDropped because its output was not read, os.ErrClosed
// because Close was called or the pipes were closed by their reader.
func (a *Attachment) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Exit is how the app's run ended. It may be called once Done is closed and
// Err is nil.
func (a *Attachment) Exit() Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exit
}

// Resize sets the size of the app's terminal; without one it does nothing.
func (a *Attachment) Resize(width, height uint16) error {
	if !a.Terminal {
		return nil
	}
	if err := a.fan.resize(width, height); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Close ends the attachment, leaving the app alone, and closes its files. It
// may be called again.
func (a *Attachment) Close() error {
	a.finish(os.ErrClosed)
	for _, f := range []*os.File{a.Stdout, a.Stderr, a.Stdin} {
		if f != nil {
			_ = f.Close()
		}
	}
	return nil
}

// end is called when the run has ended and written its last.
func (a *Attachment) end(exit Exit) {
	a.mu.Lock()
	a.exit = exit
	a.mu.Unlock()
	for _, out := range a.outlets {
		if out != nil {
			out.end()
		}
	}
}

func (a *Attachment) outletDone() {
	a.mu.Lock()
	a.left--
	last := a.left == 0
	a.mu.Unlock()
	if last {
		a.finish(nil)
	}
}

func (a *Attachment) fail(err error) {
	if errors.Is(err, syscall.EPIPE) {
		err = os.ErrClosed
	}
	a.finish(err)
}

func (a *Attachment) finish(err error) {
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return
	}
	a.over = true
	a.err = err
	close(a.done)
	a.mu.Unlock()
	a.fan.remove(a)
	for _, out := range a.outlets {
		if out != nil {
			out.close()
		}
	}
	if a.input != nil {
		_ = a.input.Close()
	}
}
