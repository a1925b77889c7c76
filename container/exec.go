package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/opencontainers/runc/libcontainer/system"
	"golang.org/x/sys/unix"

	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// Exec implements spec.Container.
//
// Init forks the process outside the container, where no process of the container can interfere with it, for
// libcontainer's containers too: that would start this program twice to join all namespaces, and init is already in all
// but two. The process joins the mount and the cgroup namespace and the cgroups by open descriptors, and does the rest
// as the first process. The cgroup namespace of a privileged container is the supervisor's own; where that of another
// one is not known, the process makes one that is like it.
func (c *container) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	p, err := c.exec(cmd, stdio)
	if err != nil {
		return nil, c.failed("enter", err)
	}
	return p, nil
}

func (c *container) exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	p := c.spec.Process
	p.Args, p.Env, p.Dir = cmd.Args, cmd.Env, cmd.Dir
	p.User, p.Group, p.SupplementaryGID = cmd.User, cmd.Group, cmd.SupplementaryGID
	e, err := c.newEntrance(&p, c.joinFlags()|shimOwnStdio, nil)
	if err != nil {
		return nil, err
	}
	defer e.close()
	files, err := c.openCgroupFiles()
	defer files.close()
	if err != nil {
		return nil, err
	}
	j := &joining{entrance: e, stdio: stdio, cgroupFiles: files}
	started, err := j.enter()
	if err == nil {
		if err = e.within(c.runtime.execLimit, started, e.result); err != nil {
			e.end(started)
		}
	}
	if err != nil {
		closeAll([]*os.File{j.master})
		return nil, err
	}
	if j.master != nil {
		stdio.Console <- j.master
	}
	started.Runs()
	return started, nil
}

// joinFlags returns the flags of a plan for a command in the running container.
func (c *container) joinFlags() uint32 {
	switch {
	case c.spec.Privileged:
		return shimJoin
	case c.handles.cgroups == nil:
		return shimJoin | shimNewCgroups
	}
	return shimJoin | shimJoinCgroups
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close() // nil is none
	}
}

// joining starts a command in a running container.
type joining struct {
	*entrance
	stdio       spec.Stdio
	cgroupFiles cgroupFiles
	master      *os.File // of the terminal that attributes made
}

// enter starts the shim with its plan. The kernel makes the process in the container's v2 cgroup;
// if it cannot, the plan tells the shim to move there.
func (j *joining) enter() (*pid1.Child, error) {
	plan, err := j.plan()
	if err != nil {
		return nil, err
	}
	plan.ncgroups = uint32(len(j.cgroupFiles.files))
	if j.cgroupFiles.unified != nil {
		plan.ncgroups--
	}
	if err := j.pipes.send(plan); err != nil {
		return nil, err
	}
	started, err := j.start()
	if j.cgroupFiles.unified == nil || !cannotClone(err) {
		return started, err
	}
	closeAll([]*os.File{j.master})
	j.cgroupFiles.unified, j.master = nil, nil
	return j.enter()
}

// cannotClone reports whether an error can mean that the kernel cannot fork into the cgroup (clone3(2),
// CLONE_INTO_CGROUP). EAGAIN is another error: the cgroup's limit of processes is reached.
func cannotClone(err error) bool {
	return slices.ContainsFunc([]error{unix.EINVAL, unix.E2BIG, unix.EOPNOTSUPP, unix.EPERM, unix.EBADF},
		func(errno error) bool { return errors.Is(err, errno) })
}

// start has init fork the process, with the container's keyring and labels.
func (j *joining) start() (*pid1.Child, error) {
	files, closing, err := j.standard()
	defer closeAll(closing)
	if err != nil {
		return nil, err
	}
	c := j.container
	namespaces := []*os.File{c.handles.mounts}
	if j.flags&shimJoinCgroups != 0 {
		namespaces = append(namespaces, c.handles.cgroups)
	}
	f := &forked{
		files: append(files, j.files(append(namespaces, j.cgroupFiles.files...)...)...),
		shim:  j.first(), terminal: j.stdio.Terminal,
		keyring: c.keyring(), label: c.spec.SELinuxLabel,
	}
	if c.handles.pids != nil {
		f.pids, f.files = len(f.files), append(f.files, c.handles.pids)
	}
	return c.runtime.fork(f, j.cgroupFiles.unified)
}

// keyring returns the name of the container's session keyring. It is the one that libcontainer chooses.
func (c *container) keyring() string { return "_ses." + c.id }

// standard returns the process's descriptors 0, 1 and 2. The caller closes those of closing, also after an error.
func (j *joining) standard() (files, closing []*os.File, err error) {
	if j.stdio.Terminal {
		made, err := look(j.container, func(root *os.File) terminal { return openTerminal(root, j.stdio) }, terminal.close)
		if err := errors.Join(err, made.err); err != nil {
			return nil, nil, fmt.Errorf("make terminal: %w", err)
		}
		j.master = made.master
		return []*os.File{made.own, made.own, made.own}, []*os.File{made.own}, nil
	}
	files = []*os.File{j.stdio.Stdin, j.stdio.Stdout, j.stdio.Stderr}
	if slices.Contains(files, nil) {
		null, err := j.container.handles.openNull()
		if err != nil {
			return nil, nil, err
		}
		closing = []*os.File{null}
		for i, f := range files {
			files[i] = cmp.Or(f, null)
		}
	}
	return files, closing, nil
}

// terminal is a new one, or why there is none.
type terminal struct {
	master, own *os.File // own is the process's side
	err         error
}

func (t terminal) close() { closeAll([]*os.File{t.master, t.own}) }

// openTerminal makes a terminal in the container's devpts, in root. The caller closes both sides.
func openTerminal(root *os.File, stdio spec.Stdio) (t terminal) {
	t.err = t.open(root, stdio)
	if t.err != nil {
		t.close()
	}
	return t
}

func (t *terminal) open(root *os.File, stdio spec.Stdio) error {
	path, err := pathrs.OpenatInRoot(root, "dev/pts/ptmx")
	if err != nil {
		return err
	}
	defer path.Close()
	return t.openAt(path, stdio)
}

// openAt makes a terminal of the devpts that has its ptmx at path.
func (t *terminal) openAt(path *os.File, stdio spec.Stdio) (err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(path.Fd()), &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return errors.New("/dev/pts is not a devpts")
	}
	if t.master, err = pathrs.Reopen(path, unix.O_RDWR|unix.O_NOCTTY); err != nil {
		return err
	}
	fd := int(t.master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	if stdio.Width != 0 && stdio.Height != 0 {
		size := &unix.Winsize{Col: stdio.Width, Row: stdio.Height}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
			return os.NewSyscallError("ioctl TIOCSWINSZ", err)
		}
	}
	// Not by its path, which the app may have replaced (ioctl_tty(2)).
	t.own, err = system.GetPtyPeer(uintptr(fd), "terminal", unix.O_RDWR)
	return err
}
