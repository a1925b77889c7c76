package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/launcher/daemon"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Exec implements the CRI.
func (s *Server) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, _, err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.streams.GetExec(r)
}

// Attach implements the CRI.
func (s *Server) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if _, _, err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.streams.GetAttach(r)
}

// PortForward implements the CRI.
func (s *Server) PortForward(
	_ context.Context, r *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	if _, err := s.readySandbox(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return s.streams.GetPortForward(r)
}

// streamRuntime does for package streaming what its clients ask for.
type streamRuntime struct{ *Server }

// Exec implements streaming.Runtime.
func (s streamRuntime) Exec(
	ctx context.Context, id string, words []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	sizes <-chan remotecommand.TerminalSize,
) error {
	pod, app, err := s.runningApp(id)
	if err != nil {
		return err
	}
	command := daemon.Command{Exec: words, TTY: tty, Terminal: "xterm"}
	code, err := s.command(ctx, pod, app, command, streams{in, out, errOut, tty, sizes})
	if err == nil && code != 0 {
		err = utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	}
	return err
}

// Attach implements streaming.Runtime.
func (s streamRuntime) Attach(
	ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	sizes <-chan remotecommand.TerminalSize,
) error {
	record, pod, err := s.running(id)
	if err != nil {
		return err
	}
	_, err = carry(ctx, streams{in, out, errOut, record.TTY, sizes}, func(caller daemon.Caller) (int, error) {
		return s.daemon.Attach(ctx, pod, record.App, caller)
	})
	return err
}

// streams are a client's. Those that the client has not asked for are nil.
type streams struct {
	in          io.Reader
	out, errOut io.Writer
	tty         bool
	sizes       <-chan remotecommand.TerminalSize
}

// carry runs a call with a terminal or pipes as its stdio, and copies between these and the client's streams. When ctx
// ends, which ends the call, or the call fails, what processes of the call may have left does not hold it up.
func carry(ctx context.Context, s streams, call func(daemon.Caller) (int, error)) (int, error) {
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	failing := func(caller daemon.Caller) (int, error) {
		code, err := call(caller)
		if err != nil {
			fail()
		}
		return code, err
	}
	if s.tty {
		return carryTerminal(ctx, s, failing)
	}
	return carryPipes(ctx, s, failing)
}

// carryPipes is carry by pipes.
func carryPipes(ctx context.Context, s streams, call func(daemon.Caller) (int, error)) (int, error) {
	stdin, err := s.input()
	if err != nil {
		return 0, err
	}
	defer stdin.Close()
	stdout, copied, err := outputTo(ctx, s.out)
	if err != nil {
		return 0, err
	}
	stderr, copiedToo, err := outputTo(ctx, s.errOut)
	if err != nil {
		_ = stdout.Close()
		return 0, err
	}
	code, err := call(daemon.Caller{Stdio: [3]*os.File{stdin, stdout, stderr}})
	_, _ = stdout.Close(), stderr.Close() // the call has its own
	return code, errors.Join(err, <-copied, <-copiedToo)
}

// input returns the file that the call reads: a pipe that the client's input is copied to, or the null device.
func (s streams) input() (*os.File, error) {
	if s.in == nil {
		return os.Open(os.DevNull)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(write, s.in) // ends with the client's input, or with the call
		_ = write.Close()
	}()
	return read, nil
}

// outputTo returns a file that the call writes, whose content is copied to the client until the file and its copies are
// closed, or ctx ends. A client that has gone closes the pipe.
func outputTo(ctx context.Context, to io.Writer) (*os.File, <-chan error, error) {
	done := make(chan error, 1)
	if to == nil {
		done <- nil
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return null, done, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	unhook := context.AfterFunc(ctx, func() { _ = read.Close() })
	go func() {
		defer unhook()
		_, err := io.Copy(to, read)
		_ = read.Close()
		if ctx.Err() != nil {
			err = nil // the call says why
		}
		done <- err
	}()
	return write, done, nil
}

// carryTerminal is carry by a terminal of the client's size.
func carryTerminal(ctx context.Context, s streams, call func(daemon.Caller) (int, error)) (int, error) {
	master, slave, err := openTerminal()
	if err != nil {
		return 0, err
	}
	defer master.Close()
	unhook := context.AfterFunc(ctx, func() { _ = master.Close() })
	defer unhook()
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	defer close(done)
	go followSizes(s.sizes, master, signals, done)
	if s.in != nil {
		go func() { _, _ = io.Copy(master, s.in) }()
	}
	copied := make(chan struct{})
	go func() {
		if s.out != nil {
			_, _ = io.Copy(s.out, master) // ends with EIO when the slave is closed
		}
		close(copied)
	}()
	code, err := call(daemon.Caller{Stdio: [3]*os.File{slave, slave, slave}, Signals: signals})
	_ = slave.Close()
	<-copied
	return code, err
}

// openTerminal opens a new pseudo-terminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		peer, _, failure := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if failure != 0 {
			err = failure
			return
		}
		slave = os.NewFile(peer, "terminal")
	})
	if err := errors.Join(err, controlErr); err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	return master, slave, nil
}

// followSizes gives the terminal the client's sizes, and signals each to the call.
func followSizes(sizes <-chan remotecommand.TerminalSize, master *os.File,
	signals chan<- os.Signal, done <-chan struct{},
) {
	for {
		select {
		case <-done:
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			resize(master, size)
		}
		select {
		case signals <- unix.SIGWINCH:
		default: // one is on its way
		}
	}
}

func resize(terminal *os.File, size remotecommand.TerminalSize) {
	if raw, err := terminal.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Width, Row: size.Height})
		})
	}
}

// dialInside connects to a port of a sandbox's loopback interface.
func (s streamRuntime) dialInside(ctx context.Context, r records.Sandbox, port int32) (connection net.Conn, err error) {
	err = thread.New(func() error {
		err := sandboxes.Enter(s.records.SandboxDir(r.ID), r)
		if err != nil {
			return err
		}
		// A dial to one address makes its socket on this thread.
		for _, host := range []string{"127.0.0.1", "::1"} {
			if connection, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(port))); err == nil {
				return nil
			}
		}
		return err
	})
	return connection, err
}

// PortForward implements streaming.Runtime.
func (s streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	sandbox, err := s.records.Sandbox(id)
	if err != nil {
		return err
	}
	connection, err := s.dialInside(ctx, sandbox, port)
	if err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	if err := join(stream, connection.(*net.TCPConn), answerLimit); err != nil {
		return fmt.Errorf("forward port %d: %w", port, err)
	}
	return nil
}

// answerLimit is how long a server in a pod may be silent to a client that sends no more: the client may have gone, and
// nobody says so.
const answerLimit = time.Minute

// join copies between a stream and a connection until the connection has ended, or nothing of it has been passed on for
// a limit after the stream's end, which is an error. It closes both.
func join(stream io.ReadWriteCloser, connection *net.TCPConn, limit time.Duration) error {
	defer stream.Close()
	defer connection.Close()
	sent, passed, received := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.CloseWrite()
		close(sent)
	}()
	go func() {
		_, err := io.Copy(noting{stream, passed}, connection)
		received <- err
	}()
	var late <-chan time.Time // nil until the stream's end
	for {
		select {
		case err := <-received:
			return err
		case <-sent:
			sent, late = nil, time.After(limit)
		case <-passed:
			if late != nil {
				late = time.After(limit)
			}
		case <-late:
			return fmt.Errorf("the client sends no more, and the server is silent for %s", limit)
		}
	}
}

// noting is a writer that notes that something has been written, unless that is noted still.
type noting struct {
	io.Writer
	written chan<- struct{}
}

func (n noting) Write(p []byte) (int, error) {
	written, err := n.Writer.Write(p)
	select {
	case n.written <- struct{}{}:
	default:
	}
	return written, err
}
