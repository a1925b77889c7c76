package callins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errDropped is the message for a caller that did not read its output.
var errDropped = errors.New("dropped, because the output was not read in time")

// callAttach is the call-in attach: it copies the output of the app that args names to the
// caller from now on, and the caller's stdin to the app if the app's is open. It ends with the
// app; if the app ended with another status than 0, the error is an *ExitError without
// Err. Code 124 means that the supervisor dropped the caller, 125 that it could not
// attach, 128+N that signal N ended the call-in. The app runs on in these cases.
func callAttach(ctx context.Context, s Streams, args []string) error {
	code, err := attach(ctx, s, args)
	switch {
	case errors.Is(err, errDropped):
		code = exitDropped
	case err != nil:
		code = codeOf(err)
	}
	return exit("attach", code, err)
}

func attach(ctx context.Context, s Streams, args []string) (int, error) {
	app, err := oneApp(args)
	if err != nil {
		return 0, err
	}
	c, err := dial(ctx, s.Socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ask := request{
		Version: protocolVersion, Call: requestAttach, App: app,
		Input: !isNull(s.Stdin), NoOut: isNull(s.Stdout), NoErr: isNull(s.Stderr),
	}
	if err := c.ask(ask); err != nil {
		return 0, err
	}
	if err := c.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, err
	}
	r, p, err := c.next(kindStreams)
	if err != nil {
		return 0, err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil { // the app may run for years
		return 0, err
	}
	theirs, err := takeStreams(r, p, s)
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 64)
	defer signal.Stop(signals)
	notifyUnlessIgnored(signals)
	if r.Terminal {
		restore, err := rawMode(s.Stdin)
		if err != nil {
			theirs.close()
			return 0, err
		}
		defer restore()
		signal.Notify(signals, unix.SIGWINCH)
		signals <- unix.SIGWINCH // for the size at the start
	}
	return follow(c, s, theirs, signals)
}

// notifyUnlessIgnored leaves out the signals that the caller's parent had it ignore.
func notifyUnlessIgnored(signals chan<- os.Signal) {
	for _, sig := range endSignals {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// takeStreams makes the copies for a reply of kind streams.
func takeStreams(r reply, p packet, s Streams) (all copies, err error) {
	outputs := []*os.File{s.Stdout}
	if r.Stderr {
		outputs = append(outputs, s.Stderr)
	}
	want := len(outputs)
	if r.Stdin {
		want++
	}
	if len(p.files) != want {
		p.close()
		return all, fmt.Errorf("the supervisor sent %d streams, want %d", len(p.files), want)
	}
	for i, f := range p.files {
		if i < len(outputs) {
			err = all.addOutput(outputs[i], f)
		} else {
			all.input, err = newInput(f, s.Stdin)
		}
		if err != nil {
			all.close()
			packet{files: p.files[i+1:]}.close()
			return copies{}, err
		}
	}
	return all, nil
}

// follow copies until the app ends, the caller is dropped, or a signal comes.
func follow(c conn, s Streams, theirs copies, signals <-chan os.Signal) (int, error) {
	theirs.start(func() { c.Close() })
	last := make(chan ending, 1)
	go func() { last <- awaitEnding(c) }()
	for {
		select {
		case end := <-last:
			if errors.Is(end.err, errDropped) {
				return 0, end.err // the output is stuck
			}
			code, err := awaitOutput(func() error { return finishAll(theirs.outputs) }, signals)
			if code != 0 {
				return code, nil
			}
			return end.code, cmp.Or(err, end.err)
		case sig := <-signals:
			if sig != unix.SIGWINCH {
				return 128 + int(sig.(syscall.Signal)), nil
			}
			tellSize(c, s)
		}
	}
}

type ending struct {
	code int
	err  error
}

func awaitEnding(c conn) ending {
	r, p, err := c.next(kindExit, kindDropped)
	p.close()
	if err == nil && r.Kind == kindDropped {
		err = errDropped
	}
	return ending{r.Code, err}
}

// tellSize gives the app's terminal the size of the caller's, if it has one. The next
// receive returns the error.
func tellSize(c conn, s Streams) {
	if terminalOf(s) != nil {
		_ = sendSize(c, s)
	}
}

// sendSize sends the size of the caller's terminal.
func sendSize(c conn, s Streams) error {
	width, height := callerSize(s)
	return c.send(note{Width: width, Height: height}, nil)
}
