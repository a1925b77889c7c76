package callins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// forwarded are the signals that run passes on to its command; callins/plain/run.c lists them, too.
var forwarded = []os.Signal{ //nolint:gochecknoglobals // a table that is only read
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
}

// callRun is the call-in run: it starts the command that the settings describe in
// the app that args names, and ends as the command does. If the command ended with
// another status than 0, the error is an *ExitError without Err; if it could not be
// run, one with Code 125, 126 or 127. When ctx ends, the command is killed. If a reader does not take
// the command's last output, a signal N of forwarded ends the call-in with Code 128+N.
func callRun(ctx context.Context, s Streams, args []string) error {
	start := run
	if s.Begun != nil {
		start = finishRun
	}
	code, err := start(ctx, s, args)
	if err != nil {
		code = codeOf(err)
	}
	return exit(cmp.Or(os.Getenv(names.RunNameVariable), names.Run), code, err)
}

func run(ctx context.Context, s Streams, args []string) (int, error) {
	app, err := oneApp(args)
	if err != nil {
		return 0, err
	}
	text, err := readSettings(s.Settings, settingsTime)
	if err != nil {
		return 0, err
	}
	set, err := parseSettings(text)
	if err != nil {
		return 0, err
	}
	c, err := dial(ctx, s.Socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b, err := newBetween(s, set.TTY)
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 64) // a burst must not lose one
	notifyForwarded(signals)
	defer signal.Stop(signals)
	req := request{App: app}
	if set.TTY {
		req.Term = os.Getenv("TERM")
		req.Width, req.Height = callerSize(s)
	}
	early, err := begin(c, req, text, b, signals)
	if err != nil {
		b.close()
		return 0, err
	}
	if set.TTY {
		return runTerminal(ctx, c, s, b, early, signals)
	}
	return runPipes(ctx, c, b, early, signals)
}

// notifyForwarded leaves out SIGHUP if the call-in was started to ignore it, as under nohup(1): the command is to
// survive the hangup also. A shell has its background jobs ignore SIGINT and SIGQUIT, which a daemon may still send.
func notifyForwarded(signals chan<- os.Signal) {
	for _, sig := range forwarded {
		if sig != unix.SIGHUP || !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// finishRun ends the call that s has begun.
func finishRun(_ context.Context, s Streams, _ []string) (int, error) {
	if s.Ended != 0 {
		return 0, endedBy(s.Ended)
	}
	begun, err := net.FileConn(s.Begun)
	if err != nil {
		return 0, fmt.Errorf("take over connection: %w", err)
	}
	c := conn{begun.(*net.UnixConn)}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(signalTime)); err != nil {
		return 0, fmt.Errorf("limit wait for the end: %w", err)
	}
	r, p, err := c.next(kindExit)
	p.close()
	return r.Code, startError(err)
}

// endedBy is the error of a call that a signal has ended before its command ran.
func endedBy(sig syscall.Signal) error {
	return &remoteError{code: 128 + int(sig), message: fmt.Sprintf("ended by signal %q before the command ran", sig)}
}

// startError returns the error of the reply to a request.
func startError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the pod's supervisor does not answer within %v", startTime)
	}
	return err
}

// begin asks for the command, and returns once it runs. early are the signals that are for it.
func begin(c conn, req request, text []byte, b *between, signals <-chan os.Signal) (early []os.Signal, err error) {
	err = askRun(c, req, text, b.stdio...)
	b.passed()
	if err != nil {
		return nil, err
	}
	p, early, err := awaitStart(c, kindStarted, signals)
	p.close()
	return early, err
}

// runPipes carries the streams of a command that has not asked for a terminal.
func runPipes(ctx context.Context, c conn, b *between, early []os.Signal, signals <-chan os.Signal) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.start(func() {}) // the command's next write fails
	go forward(ctx, early, signals, func(sig os.Signal) error { return sendSignal(c, sig) })
	r, p, err := c.next(kindExit)
	p.close()
	signal.Reset(forwarded...) // the command is gone; a signal may end a caller if nothing reads the rest
	if err == nil {
		err = awaitLast(c)
	}
	if copyErr := b.finish(); copyErr != nil {
		err = copyErr
	}
	return r.Code, err
}

// awaitLast waits until the supervisor has passed on the output of a command that has ended, or reports that it cannot.
func awaitLast(c conn) error {
	var r reply
	p, err := c.receive(&r)
	p.close()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil && r.Kind == kindError:
		return &remoteError{code: r.Code, message: r.Message}
	case err == nil:
		return fmt.Errorf("the supervisor sent %q after the end", r.Kind)
	}
	return err
}

const (
	// startTime is how long a command may take to start; starts wait for each other.
	startTime = time.Minute
	// signalTime is how long it may take after a signal: the command may run
	// already, with the reply on its way.
	signalTime = time.Second
)

// awaitStart receives the reply that the command runs. A signal, except for a change of
// the window, that comes more than signalTime before the reply ends the call, because
// there is no command yet to send it to. It returns those that came while the reply was on
// its way, early, which are for the command.
func awaitStart(c conn, started kind, signals <-chan os.Signal) (p packet, early []os.Signal, err error) {
	if err := c.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return p, nil, fmt.Errorf("limit wait for the start: %w", err)
	}
	over, came := make(chan struct{}), make(chan []os.Signal, 1)
	go func() {
		came <- collect(signals, over, func() { _ = c.SetReadDeadline(time.Now().Add(signalTime)) })
	}()
	_, p, err = c.next(started)
	close(over)
	early = <-came
	if err == nil {
		return p, early, c.SetReadDeadline(time.Time{})
	}
	for _, sig := range early {
		if sig != unix.SIGWINCH {
			err = endedBy(sig.(syscall.Signal))
		}
	}
	return p, nil, startError(err)
}

// collect takes signals until over is closed, or until one comes that is not a change
// of the window; then it calls hurry and takes no more. It returns several changes as
// one.
func collect(signals <-chan os.Signal, over <-chan struct{}, hurry func()) []os.Signal {
	var came []os.Signal
	for {
		select {
		case <-over:
			return came
		case sig := <-signals:
			if sig != unix.SIGWINCH {
				hurry()
				return append(came, sig)
			}
			came = []os.Signal{sig}
		}
	}
}

// askRun sends the request with the settings and the command's streams.
func askRun(c conn, req request, settings []byte, streams ...*os.File) error {
	memory, err := sealed("settings", settings)
	if err != nil {
		return err
	}
	defer memory.Close()
	req.Version, req.Call = protocolVersion, requestRun
	return c.ask(req, append([]*os.File{memory}, streams...)...)
}

// forward calls pass with the early signals and then with each that comes, until ctx
// ends or pass fails.
func forward(ctx context.Context, early []os.Signal, signals <-chan os.Signal, pass func(os.Signal) error) {
	for _, sig := range early {
		if pass(sig) != nil {
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			if pass(sig) != nil {
				return
			}
		}
	}
}

func sendSignal(c conn, sig os.Signal) error {
	return c.send(note{Signal: int(sig.(syscall.Signal))}, nil)
}

// runTerminal carries the streams of a command on a terminal of its own, which has the size of the caller's.
func runTerminal(
	ctx context.Context, c conn, s Streams, b *between, early []os.Signal, signals <-chan os.Signal,
) (int, error) {
	restore, err := rawMode(s.Stdin)
	if err != nil {
		b.close()
		return 0, err
	}
	defer restore()
	var passing sync.WaitGroup
	passed, stopPassing := context.WithCancel(ctx)
	defer stopPassing()
	passing.Go(func() {
		forward(passed, early, signals, func(sig os.Signal) error {
			// The kernel signals a new size of the terminal to the command.
			if sig == unix.SIGWINCH && terminalOf(s) != nil {
				return sendSize(c, s)
			}
			return sendSignal(c, sig)
		})
	})
	b.start(func() { c.Close() })
	r, p, err := c.next(kindExit)
	p.close()
	stopPassing() // the command is gone: from now on a signal is for this call-in
	passing.Wait()
	code, outErr := awaitOutput(func() error {
		if err == nil {
			err = awaitLast(c)
		}
		return finishAll(b.outputs)
	}, signals)
	switch {
	case code != 0:
		return code, nil
	case outErr != nil:
		return 0, outErr
	}
	return r.Code, err
}
