package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/opencontainers/runc/libcontainer/keys"
	"github.com/opencontainers/runc/libcontainer/system"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// Exec implements spec.Container.
//
// The supervisor is already in all of the container's namespaces but two, so it does not use libcontainer, which
// would start this program twice to join them all. The supervisor executes the shim outside the container, where no
// process of the container can interfere with it. The shim joins the mount and the cgroup namespace and the cgroups
// by open descriptors, and does the rest as for the first process. The cgroup namespace of a privileged container is
// the supervisor's own; where that of another one is not known, the shim makes one that is like it.
func (c *container) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	p, err := c.exec(cmd, stdio)
	if err != nil {
		return nil, c.failed("enter", err)
	}
	return p, nil
}

func (c *container) exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	defer starting()()
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
	return &process{pid: started.Pid, release: func() { _ = started.Release() }}, nil
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
func (j *joining) enter() (*os.Process, error) {
	plan, err := j.plan()
	if err != nil {
		return nil, err
	}
	// os.StartProcess waits for the exec of its child, which never comes if the child is made in a frozen cgroup. A shim
	// that moves there itself is frozen later, and ends by its limit.
	if !j.container.runtime.direct && j.cgroupFiles.isFrozen() {
		j.cgroupFiles.unified = nil
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

// cannotClone reports whether an error can mean that the kernel lacks clone3(2) or
// CLONE_INTO_CGROUP. EAGAIN is another error: the cgroup's limit of processes is reached.
func cannotClone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOSYS, unix.EINVAL, unix.E2BIG, unix.EOPNOTSUPP, unix.EPERM, unix.EBADF},
		func(errno error) bool { return errors.Is(err, errno) })
}

// start executes the shim, with the container's keyring and labels: as a fork of the direct runtime, or as a program
// from the starter's thread. The shim is the child of the thread that forks it, which must not end before the reaper
// knows the shim (reap.Reaper.Spawn).
func (j *joining) start() (started *os.Process, err error) {
	attr, closing, err := j.attributes()
	defer closeAll(closing)
	if err != nil {
		return nil, err
	}
	c := j.container
	if c.runtime.direct {
		f := &forked{
			files: attr.Files, shim: j.first(), terminal: j.stdio.Terminal,
			keyring: c.keyring(), label: c.spec.SELinuxLabel,
		}
		if c.handles.pids != nil {
			f.pids, f.files = len(f.files), append(f.files, c.handles.pids)
		}
		return c.runtime.forker.start(f, j.cgroupFiles.unified)
	}
	c.runtime.starter.do(func() {
		if err = j.setLabels(); err != nil {
			return
		}
		err = inPIDs(c.handles.pids, func() error {
			started, err = os.StartProcess(j.program(), []string{"shim"}, attr)
			return err
		})
	})
	return started, err
}

// keyring returns the name of the container's session keyring. It is the one that libcontainer chooses.
func (c *container) keyring() string { return "_ses." + c.id }

// setLabels sets what the thread's children inherit: the container's session keyring, and the labels
// that take effect at their next exec.
func (j *joining) setLabels() error {
	// A kernel can lack keyrings.
	if _, err := keys.JoinSessionKeyring(j.container.keyring()); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("join session keyring: %w", err)
	}
	if err := selinux.SetExecLabel(j.container.spec.SELinuxLabel); err != nil {
		return fmt.Errorf("set SELinux label: %w", err)
	}
	return nil
}

// attributes makes the shim the leader of a new session, with its files. The caller closes those of closing, also after
// an error.
func (j *joining) attributes() (attr *os.ProcAttr, closing []*os.File, err error) {
	attr = &os.ProcAttr{Dir: "/", Env: []string{j.variable()}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if j.cgroupFiles.unified != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(j.cgroupFiles.unified.Fd())
	}
	if j.stdio.Terminal {
		made, err := look(j.container, func(root *os.File) terminal { return openTerminal(root, j.stdio) }, terminal.close)
		if err := errors.Join(err, made.err); err != nil {
			return nil, nil, fmt.Errorf("make terminal: %w", err)
		}
		closing, j.master = []*os.File{made.own}, made.master
		attr.Files = []*os.File{made.own, made.own, made.own}
		attr.Sys.Setctty = true
	} else {
		attr.Files = []*os.File{j.stdio.Stdin, j.stdio.Stdout, j.stdio.Stderr}
		if slices.Contains(attr.Files, nil) {
			null, err := j.container.handles.openNull()
			if err != nil {
				return nil, nil, err
			}
			closing = []*os.File{null}
			for i, f := range attr.Files {
				attr.Files[i] = cmp.Or(f, null)
			}
		}
	}
	namespaces := []*os.File{j.container.handles.mounts}
	if j.flags&shimJoinCgroups != 0 {
		namespaces = append(namespaces, j.container.handles.cgroups)
	}
	attr.Files = append(attr.Files, j.files(append(namespaces, j.cgroupFiles.files...)...)...)
	return attr, closing, nil
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
