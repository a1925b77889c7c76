package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/utils"
	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

// launch is a container's first process on its way.
type launch struct {
	*entrance
	process  libcontainer.Process
	stdio    supervisor.Stdio
	console  *os.File // our end of the socket that the terminal's master comes through
	consoles *os.File // libcontainer's end
}

// newLaunch prepares everything that the first process needs from outside. The caller
// closes it, whatever becomes of the process.
func (c *container) newLaunch(stdio supervisor.Stdio) (*launch, error) {
	e, err := c.newEntrance(&c.spec.Process, shimOwnStdio, c.spec.Files)
	if err != nil {
		return nil, err
	}
	l := &launch{entrance: e, stdio: stdio}
	l.process = libcontainer.Process{
		Init: true,
		Args: []string{e.program()},
		// With a HOME, libcontainer does not read the image's passwd file for one,
		// which may be a FIFO that no process writes to.
		Env:        []string{e.variable(), "HOME=/"},
		Cwd:        "/",
		LogLevel:   "3", // warnings; libcontainer's default sends every step through a pipe, as JSON
		ExtraFiles: e.files(),
	}
	if stdio.Terminal {
		return l, l.openConsole()
	}
	// A typed nil would be an io.Reader that is not nil.
	if stdio.Stdin != nil {
		l.process.Stdin = stdio.Stdin
	}
	if stdio.Stdout != nil {
		l.process.Stdout = stdio.Stdout
	}
	if stdio.Stderr != nil {
		l.process.Stderr = stdio.Stderr
	}
	return l, nil
}

func (l *launch) openConsole() (err error) {
	l.console, l.consoles, err = utils.NewSockPair("console")
	if err != nil {
		l.close()
		return fmt.Errorf("make console socket: %w", err)
	}
	l.process.ConsoleSocket = l.consoles
	l.process.ConsoleWidth, l.process.ConsoleHeight = l.stdio.Width, l.stdio.Height
	return nil
}

func (l *launch) close() {
	l.entrance.close()
	closeAll([]*os.File{l.console, l.consoles})
}

// kill ends a process that could not become the app, and waits for it.
func (l *launch) kill() {
	if pid, err := l.process.Pid(); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
	}
	_, _ = l.process.Wait()
}

// started returns the running process, after it has sent its terminal's master.
func (l *launch) started() (supervisor.Process, error) {
	pid, err := l.process.Pid()
	if err != nil {
		return nil, err
	}
	if l.stdio.Terminal {
		master, err := receiveFile(l.console)
		if err != nil {
			l.kill()
			return nil, fmt.Errorf("receive terminal: %w", err)
		}
		l.stdio.Console <- master
	}
	return &process{pid: pid, release: func() { _, _ = l.process.Wait() }}, nil
}

// receiveFile takes one descriptor from a socket (unix(7), SCM_RIGHTS).
func receiveFile(socket *os.File) (*os.File, error) {
	name, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(socket.Fd()), name, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no descriptor came (" + strconv.Itoa(len(messages)) + " messages)")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no descriptor came")
	}
	return os.NewFile(uintptr(fds[0]), string(name[:n])), nil
}
