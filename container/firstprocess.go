package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/utils"
	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
	"kurma.io/stager/spec"
)

// firstProcess starts a container's first process.
type firstProcess struct {
	*entrance
	process  libcontainer.Process
	stdio    spec.Stdio
	trees    []tree
	console  *os.File // our end of the socket that transfers the terminal's master
	consoles *os.File // libcontainer's end
}

// newFirstEntrance makes the entrance of the first process, with the trees that its shim attaches. The caller closes
// it, even if the process cannot start, and the trees.
func (c *container) newFirstEntrance(trees []tree) (*firstProcess, error) {
	flags := uint32(shimOwnStdio)
	if !c.spec.Privileged {
		flags |= shimNewCgroups
	}
	e, err := c.newEntrance(&c.spec.Process, flags, c.spec.Files)
	if err != nil {
		return nil, err
	}
	return &firstProcess{entrance: e, trees: trees}, nil
}

// newFirstProcess is newFirstEntrance for libcontainer.
func (c *container) newFirstProcess(stdio spec.Stdio, trees []tree) (*firstProcess, error) {
	l, err := c.newFirstEntrance(trees)
	if err != nil {
		return nil, err
	}
	l.stdio = stdio
	e := l.entrance
	l.process = libcontainer.Process{
		Init: true,
		Args: []string{e.program()},
		// If HOME is set, libcontainer does not look it up in the image's passwd file,
		// which may be a FIFO that no process writes to.
		Env:        []string{e.variable(), "HOME=/"},
		Cwd:        "/",
		LogLevel:   "3", // warnings; libcontainer's default sends every step through a pipe, as JSON
		ExtraFiles: e.files(treeFiles(trees)...),
	}
	if p := e.process; p.MakeDir && p.Dir != "" {
		l.process.Cwd = p.Dir // libcontainer makes it
	}
	if stdio.Terminal {
		return l, l.openConsole()
	}
	// A nil *os.File in an io.Reader is not a nil io.Reader.
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

// plan decides what the shim does, see entrance.plan.
func (l *firstProcess) plan() (*shimPlan, error) {
	plan, err := l.entrance.plan()
	if err != nil {
		return nil, err
	}
	for _, t := range l.trees {
		plan.targets = append(plan.targets, t.target)
	}
	return plan, nil
}

func (l *firstProcess) openConsole() (err error) {
	l.console, l.consoles, err = utils.NewSockPair("console")
	if err != nil {
		l.close()
		return fmt.Errorf("make console socket: %w", err)
	}
	l.process.ConsoleSocket = l.consoles
	l.process.ConsoleWidth, l.process.ConsoleHeight = l.stdio.Width, l.stdio.Height
	return nil
}

func (l *firstProcess) close() {
	l.entrance.close()
	closeAll([]*os.File{l.console, l.consoles})
}

// follow returns the process that libcontainer has started.
func (l *firstProcess) follow() (*child.Process, error) {
	pid, err := l.process.Pid()
	if err != nil {
		return nil, err
	}
	return child.Follow(pid, func() { _, _ = l.process.Wait() }) // what libcontainer does at the end
}

// sendTerminal sends the terminal's master, if there is one, to stdio.Console.
func (l *firstProcess) sendTerminal() error {
	if !l.stdio.Terminal {
		return nil
	}
	master, err := receiveFile(l.console)
	if err != nil {
		return fmt.Errorf("receive terminal: %w", err)
	}
	l.stdio.Console <- master
	return nil
}

// receiveFile receives one descriptor from a socket (unix(7), SCM_RIGHTS).
func receiveFile(socket *os.File) (*os.File, error) {
	name, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(socket.Fd()), name, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no descriptor received (" + strconv.Itoa(len(messages)) + " messages)")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no descriptor received")
	}
	return os.NewFile(uintptr(fds[0]), string(name[:n])), nil
}
