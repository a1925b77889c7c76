package output

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Attachment is a connection to an app's streams, for one run of the app: it
// ends when that run ends, even if the app is started again. Its methods
// may be called by several goroutines at once. Its files belong to the caller of
// Attach, which may close them early, for instance after it has sent them elsewhere.
type Attachment struct {
	// Stdout and Stderr are read ends of pipes: the app's output from Attach
	// on, then end of file. Stderr is nil for a terminal.
	Stdout, Stderr *os.File
	// Stdin is the write end of a pipe whose content goes to the app, nil when it has no open
	// stdin. Closing it does not end the app's input, unless EndInput was called.
	Stdin *os.File
	// Terminal says that the app has a terminal: Stdin is its keyboard, and
	// Resize its window.
	Terminal bool

	relay   *relay
	senders [2]*sender // of stdout and stderr; nil for a terminal's stderr
	input   *os.File   // read end of Stdin
	done    chan struct{}

	mu       sync.Mutex
	unsent   int      // guarded by mu; senders that have not written their last byte
	finished bool     // guarded by mu; done is closed
	err      error    // guarded by mu; see Err
	keys     *os.File // guarded by mu; what pass writes to, nil before
}

// Attach connects to the run. The errors are ErrEnded, wrapped, or any other.
func (s *Streams) Attach() (*Attachment, error) { return newAttachment(s.relay) }

func newAttachment(r *relay) (*Attachment, error) {
	a := &Attachment{Terminal: r.terminal, relay: r, done: make(chan struct{})}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if !r.add(a) {
		return nil, errors.Join(ErrEnded, a.Close())
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
		a.senders[i] = &sender{w: w, from: a.relay.backlogs[i], fail: a.fail, done: a.senderDone}
		a.unsent++
	}
	if !a.Terminal && !a.relay.hasStdin() {
		return nil
	}
	return a.openInput()
}

// openInput makes Stdin a pipe that the app does not have: the app could lock its own for as long as it likes, and the
// holder of a terminal's master could also read the app's output.
func (a *Attachment) openInput() error {
	ours, theirs, err := pipe(false)
	if err != nil {
		return err
	}
	if !a.Terminal {
		if _, err := a.openKeys(); err != nil {
			return errors.Join(err, ours.Close(), theirs.Close())
		}
	}
	a.Stdin, a.input = theirs, ours
	a.relay.addTypist(a)
	go a.typeIn()
	return nil
}

// typeIn copies from the pipe to the app's stdin, or to its terminal once that is there, until either is closed. It
// alone closes both.
func (a *Attachment) typeIn() {
	defer a.stopTyping()
	if a.Terminal {
		select {
		case <-a.relay.opened:
		case <-a.done:
			return
		}
	}
	for ended := false; !ended; {
		ended = a.awaitTyped() != nil
		if !a.relay.takeTurn(a.done) || !a.relay.passOn(a) {
			return
		}
	}
}

func (a *Attachment) stopTyping() {
	a.relay.removeTypist(a)
	_ = a.input.Close()
	a.mu.Lock()
	keys := a.keys
	a.mu.Unlock()
	_ = keys.Close() // without mu, since the app may hold it up; nil is none
}

// awaitTyped waits until the pipe has something or its end. It returns an error after the attachment's end.
func (a *Attachment) awaitTyped() error {
	raw, err := a.input.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n != 0 || err != nil
	})
}

// pass copies what is in the pipe to the app. It returns false when there is nothing more to come, or the app takes no
// more from an attachment that has ended.
func (a *Attachment) pass() bool {
	keys, err := a.openKeys()
	if err != nil {
		return false // out of descriptors, or the run has just ended: what is typed goes nowhere
	}
	typed := make([]byte, 512)
	for range 64 << 10 / len(typed) { // more than a pipe has was typed after another attachment's text
		n := a.read(typed)
		if n < 0 {
			return true
		}
		if n == 0 || !put(keys, typed[:n]) {
			return false
		}
	}
	return true
}

// read returns 0 at the end of the pipe, and -1 when it has nothing now.
func (a *Attachment) read(typed []byte) int {
	raw, err := a.input.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if err := raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), typed) }); err != nil {
		return 0
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return -1
	}
	return max(n, 0)
}

// put writes to the app, and after the attachment's end what a terminal takes at once. It returns false when a terminal
// does not take all.
func put(keys *os.File, text []byte) bool {
	n, err := keys.Write(text)
	if !os.IsTimeout(err) {
		return true // an app that has just ended reads no more input
	}
	raw, err := keys.SyscallConn()
	if err != nil {
		return false
	}
	last := 0
	err = raw.Control(func(fd uintptr) { last, _ = unix.Write(int(fd), text[n:]) }) // a full one takes nothing
	return err == nil && last == len(text)-n
}

// openKeys opens the app's stdin or terminal for this attachment alone, whose end ends a write to it: an app that reads
// nothing fills it, and the write waits.
func (a *Attachment) openKeys() (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys != nil {
		return a.keys, nil
	}
	if a.finished {
		return nil, os.ErrClosed
	}
	keys, err := a.relay.openInput()
	a.keys = keys
	return keys, err
}

// Done is closed when the app's run has ended and its last byte is in the
// pipes, or when the attachment has ended for another reason (Err).
func (a *Attachment) Done() <-chan struct{} { return a.done }

// Err returns, once Done is closed, why the attachment ended: nil when the
// app's run ended, ErrDropped when its output was not read in time, os.ErrClosed
// when Close was called or the reader closed its pipes.
func (a *Attachment) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// EndInput has the app's stdin end when Stdin is closed, with its copies. Later attachments have none.
func (a *Attachment) EndInput() { a.relay.endStdin() }

// IgnoreOutput ends the output of those of Stdout and Stderr that the reader does not want: they get no more
// bytes, and the attachment is not dropped for them.
func (a *Attachment) IgnoreOutput(stdout, stderr bool) {
	for i, ignored := range []bool{stdout, stderr} {
		if ignored && a.senders[i] != nil {
			a.senders[i].ignore()
		}
	}
}

// Resize sets the size of the app's terminal, also before the terminal is there. Without a
// terminal it does nothing.
func (a *Attachment) Resize(width, height uint16) error {
	if !a.Terminal {
		return nil
	}
	if err := a.relay.resize(width, height); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Close ends the attachment and closes its files. The app goes on. It
// may be called again. The error is always nil.
func (a *Attachment) Close() error {
	a.finish(os.ErrClosed)
	for _, f := range []*os.File{a.Stdout, a.Stderr, a.Stdin} {
		if f != nil {
			_ = f.Close()
		}
	}
	return nil
}

// end is called when the run has ended and its last output is in the backlogs.
func (a *Attachment) end() {
	for _, out := range a.senders {
		if out != nil {
			out.end()
		}
	}
}

func (a *Attachment) senderDone() {
	a.mu.Lock()
	a.unsent--
	last := a.unsent == 0
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
	if a.finished {
		a.mu.Unlock()
		return
	}
	a.finished = true
	a.err = err
	close(a.done)
	a.mu.Unlock()
	a.relay.remove(a)
	for _, out := range a.senders {
		if out != nil {
			out.close()
		}
	}
	_ = a.input.SetReadDeadline(time.Unix(1, 0)) // nil is none
	if a.Terminal {
		_ = a.keys.SetWriteDeadline(time.Unix(1, 0))
	}
}
