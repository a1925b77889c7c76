package callins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// A process can lock its pipe for as long as it likes: splice(2) from an idle terminal into the pipe does it. Each
// read, write and close of that pipe, by any process, then waits in the kernel, where SIGKILL does not end the wait. So
// a caller has none of the command's pipes, and nothing of its terminal: the supervisor copies between these and pipes
// that it shares with the caller alone.
//
//	caller                        supervisor                                command
//	 stdin ─────► pipe ─────────► carrier ─────► pipe, or terminal's master ─► 0
//	 stdout ◄──── pipe ◄───────── carrier ◄───── pipe, or terminal's master ◄─ 1
//
// A carrier is a goroutine that alone touches its end of the command's pipe. Nothing waits for a carrier without a
// limit, and nothing else uses its thread: a locked pipe holds up this one stream, until the app kills the process, or
// the supervisor the command.

const (
	// commandPipe is the size of the pipes that commands write to.
	commandPipe = 256 << 10
	// carrySize is the most that a carrier reads at once.
	carrySize = 64 << 10
	// heldLimit is how long one read of a command's pipe takes before the pipe counts as locked.
	heldLimit = time.Second
	// maxLocked bounds an app's ended commands with a stream that a process has locked: each takes threads of the
	// supervisor.
	maxLocked = 16
	// reopenPause is the time between two reads of a terminal that no process holds: the command may open it again.
	reopenPause = 50 * time.Millisecond
)

// errUnread is the end of a stream that its caller has not read to its end when the pod has ended.
var errUnread = errors.New("the pod has ended, and the command's last output was not read in time")

// errLocked is the end of a stream with output that nobody can read.
var errLocked = errors.New("the command's last output cannot be read: a process has locked its pipe")

// carriers are the streams of a command.
type carriers struct {
	stdio   spec.Stdio        // the command's
	console chan *os.File     // of a command with a terminal
	sizes   chan unix.Winsize // for that terminal; the latest alone
	input   *carrier          // nil for none
	outputs []*carrier
}

// newCarriers makes the streams of a command for its caller's: pipes, of which the caller has the other ends, and
// null devices, in the place of which the command gets its app's. A command with a terminal has no stderr.
func newCarriers(files []*os.File, terminal bool, buffers *sync.Pool) (*carriers, error) {
	want := 3
	if terminal {
		want = 2
	}
	if len(files) != want {
		return nil, fmt.Errorf("call with %d streams, want %d", len(files), want)
	}
	all := &carriers{sizes: make(chan unix.Winsize, 1)}
	if terminal {
		all.console = make(chan *os.File, 1)
		all.stdio = spec.Stdio{Terminal: true, Console: all.console}
	}
	if err := all.addAll(files, terminal, buffers); err != nil {
		all.discard()
		return nil, err
	}
	return all, nil
}

func (all *carriers) addAll(files []*os.File, terminal bool, buffers *sync.Pool) error {
	for i, f := range files {
		info, err := f.Stat()
		switch {
		case err != nil:
			return fmt.Errorf("look at descriptor %d of the command: %w", i, err)
		case !terminal && isNull(f):
			continue
		case info.Mode().Type() != os.ModeNamedPipe:
			return fmt.Errorf("descriptor %d of the command is neither a pipe nor the null device", i)
		case i == 2 && sameFile(f, files[1]):
			all.stdio.Stderr = all.stdio.Stdout // one pipe keeps the order of what is written
			continue
		}
		if err := all.add(i, f, buffers, terminal); err != nil {
			return err
		}
	}
	return nil
}

// add makes the carrier of stream i, which the caller has at the other end of the pipe f.
func (all *carriers) add(i int, f *os.File, buffers *sync.Pool, terminal bool) error {
	callers, err := nonblocking(f)
	if err != nil {
		return err
	}
	c := &carrier{
		terminal: terminal, buffers: buffers,
		ending: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	if i == 0 {
		c.from, all.input = callers, c
	} else {
		c.to, all.outputs = callers, append(all.outputs, c)
	}
	if terminal {
		return nil // the master comes with the command
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	ours, theirs := ends[0], ends[1]
	if i == 0 {
		ours, theirs = ends[1], ends[0]
	} else {
		// Above the user's limit (pipe(7)) the pipe keeps its size, and is slower.
		_, _ = unix.FcntlInt(uintptr(ours), unix.F_SETPIPE_SZ, commandPipe)
	}
	err = unix.SetNonblock(ours, true) // before os.NewFile looks
	c.theirs = os.NewFile(uintptr(theirs), "pipe")
	c.own(os.NewFile(uintptr(ours), "pipe"))
	*[]**os.File{&all.stdio.Stdin, &all.stdio.Stdout, &all.stdio.Stderr}[i] = c.theirs
	return err
}

// nonblocking returns another descriptor of f's open file description, which does not block any more.
func nonblocking(f *os.File) (*os.File, error) {
	var fd int
	err := withDescriptor(f, func(number int) (err error) {
		if err = unix.SetNonblock(number, true); err == nil {
			fd, err = unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 3)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take over descriptor of the command: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// start begins to copy, once the command runs. It takes the terminal's master from the console.
func (all *carriers) start() error {
	if all.console != nil {
		master := <-all.console
		defer master.Close() // the carriers have theirs
		for _, c := range all.all() {
			f, err := nonblocking(master)
			if err != nil {
				all.discard()
				return err
			}
			c.own(f)
		}
		go all.resize()
	}
	for _, c := range all.all() {
		go c.carry()
	}
	return nil
}

func (all *carriers) all() []*carrier {
	if all.input == nil {
		return all.outputs
	}
	return append([]*carrier{all.input}, all.outputs...)
}

// discard frees carriers that have not been started.
func (all *carriers) discard() {
	select {
	case master := <-all.console: // nil is none
		master.Close()
	default:
	}
	for _, c := range all.all() {
		for _, f := range []*os.File{c.from, c.to, c.theirs} {
			f.Close() // nil is none
		}
	}
}

// setSize sets the size of the command's terminal, unless a later call does. One goroutine at a time may call it.
func (all *carriers) setSize(width, height uint16) {
	select {
	case <-all.sizes:
	default:
	}
	all.sizes <- unix.Winsize{Col: width, Row: height}
}

// resize sets the terminal's sizes: a process can hold up that, too.
func (all *carriers) resize() {
	output := all.outputs[0]
	for {
		select {
		case <-output.ending:
			return
		case size := <-all.sizes:
			// A terminal that has just gone has no size.
			_ = withDescriptor(output.from, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
		}
	}
}

// finish passes on what a command that has ended has left, and ends its input. What a process that is left writes
// later is dropped. It waits for the caller, until moments after ctx's end. An error says that output is lost.
func (all *carriers) finish(ctx context.Context) (err error) {
	for _, c := range all.all() {
		c.end()
	}
	for _, c := range all.outputs {
		err = errors.Join(err, c.await(ctx))
	}
	return err
}

// awaitGone returns when nothing waits for what a process has locked.
func (all *carriers) awaitGone() {
	for _, c := range all.all() {
		<-c.gone
	}
}
