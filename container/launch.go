package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/utils"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// launch is a container's first process on its way.
type launch struct {
	process  libcontainer.Process
	pipes    *shimPipes
	stdio    supervisor.Stdio
	memlock  unix.Rlimit
	profile  string   // AppArmor
	files    uint32   // that the process keeps, from 3 on
	backing  uint32   // folders of spec.Spec.Backing
	console  *os.File // our end of the socket that the terminal's master comes through
	consoles *os.File // libcontainer's end
}

// newLaunch prepares everything that a process needs from outside. The caller
// closes it, whatever becomes of the process. files are the process's from 3 on;
// backing are the folders of spec.Spec.Backing.
func (r *Runtime) newLaunch(stdio supervisor.Stdio, files, backing []*os.File) (*launch, error) {
	pipes, err := newShimPipes()
	if err != nil {
		return nil, err
	}
	l := &launch{pipes: pipes, stdio: stdio, memlock: r.memlock, files: uint32(len(files)), backing: uint32(len(backing))}
	first := 3 + len(files)
	l.process = libcontainer.Process{
		Args: []string{fdPath(first)},
		// With a HOME, libcontainer does not read the image's passwd file for one,
		// which may be a FIFO that nobody writes to.
		Env:        []string{fmt.Sprintf("%s=%d,%d", names.ShimVariable, first+1, first+2), "HOME=/"},
		Cwd:        "/",
		LogLevel:   "3", // warnings; libcontainer's default sends every step through a pipe, as JSON
		ExtraFiles: slices.Concat(files, []*os.File{r.exe, pipes.plan, pipes.reportChild}, backing),
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
	l.pipes.close()
	for _, f := range []*os.File{l.console, l.consoles} {
		if f != nil {
			f.Close()
		}
	}
}

// send decides what the shim is to do for p in the container with that root, and
// tells it.
func (l *launch) send(root *os.File, p *spec.Process, filter *filter, flags uint32, restrict bool) error {
	plan, err := planShim(root, p, filter, flags, restrict)
	if err != nil {
		return err
	}
	plan.memlock, plan.profile, plan.nbacking = l.memlock, l.profile, l.backing
	if plan.nfds = l.files; plan.nfds > 0 {
		plan.flags |= shimListenPID
	}
	return l.pipes.send(plan)
}

// planShim decides what the shim does to become p with that filter.
func planShim(root *os.File, p *spec.Process, filter *filter, flags uint32, restrict bool) (*shimPlan, error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return nil, errors.New("no program to execute")
	}
	id, err := identityOf(root, p)
	if err != nil {
		return nil, err
	}
	bounding, err := boundingSet(p.Capabilities)
	if err != nil {
		return nil, err
	}
	plan := &shimPlan{
		flags: flags, bounding: bounding, uid: id.uid, gid: id.gid, filter: filter,
		dir: p.Dir, candidates: candidates(p.Args[0], p.Env), args: p.Args, env: p.Env,
	}
	if plan.dir == "" {
		plan.dir = "/"
	}
	if p.NoNewPrivileges {
		plan.flags |= shimNoNewPrivs
	}
	if restrict {
		plan.flags |= shimLandlock
	}
	for _, g := range p.SupplementaryGID {
		if g < 0 || g > maxID {
			return nil, fmt.Errorf("supplementary group %d is not a number from 0 to %d", g, uint32(maxID))
		}
		plan.groups = append(plan.groups, uint32(g))
	}
	return plan, nil
}

func identityOf(root *os.File, p *spec.Process) (identity, error) {
	if p.Root {
		return identity{}, nil
	}
	return resolveIdentity(root, p.User, p.Group)
}

// kill ends a process that could not become the app, and waits for it.
func (l *launch) kill() {
	if pid, err := l.process.Pid(); err == nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
	}
	_, _ = l.process.Wait()
}

// started hands the running process over, and its terminal's master.
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
