package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/keys"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// Exec implements supervisor.Container.
//
// The supervisor is in all of the container's namespaces but one already, so it
// does without libcontainer, which would start this program twice to join them
// all: the shim is executed out here, where no process of the container can have a
// hand in it, joins the mount namespace and the cgroups by open descriptors, and
// does the rest as for the first process.
func (c *container) Exec(cmd supervisor.Command, stdio supervisor.Stdio) (supervisor.Process, error) {
	p, err := c.exec(cmd, stdio)
	if err != nil {
		var missing *supervisor.ExecError
		if errors.As(err, &missing) {
			return nil, err
		}
		return nil, fmt.Errorf("enter container %q: %w", c.spec.Name, err)
	}
	return p, nil
}

func (c *container) exec(cmd supervisor.Command, stdio supervisor.Stdio) (supervisor.Process, error) {
	pipes, err := newShimPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.close()
	groups, err := c.openGroups()
	defer groups.close()
	if err != nil {
		return nil, err
	}
	plan, err := c.planCommand(cmd, stdio.Terminal)
	if err != nil {
		return nil, err
	}
	e := entry{id: c.id, spec: &c.spec, stdio: stdio, root: c.places.root, group: groups.unified}
	e.files = slices.Concat([]*os.File{c.runtime.exe, pipes.plan, pipes.reportChild}, c.backing, []*os.File{c.places.mounts}, groups.files)
	started, err := e.enter(plan, pipes)
	if err == nil {
		if err = pipes.result(cmd.Args[0], cmd.Dir); err != nil {
			_ = started.Kill() // it is on its way out
			_, _ = started.Wait()
			err = explain(err, c.places.root, cmd.Args[0], cmd.Dir, cmd.Env)
		}
	}
	if err != nil {
		closeAll([]*os.File{e.master})
		return nil, err
	}
	if e.master != nil {
		stdio.Console <- e.master
	}
	return &process{pid: started.Pid, release: func() { _ = started.Release() }}, nil
}

// planCommand decides what the shim is to do for the command in the container.
func (c *container) planCommand(cmd supervisor.Command, terminal bool) (*shimPlan, error) {
	p := c.spec.Process
	p.Args, p.Env, p.Dir = cmd.Args, cmd.Env, cmd.Dir
	p.User, p.Group, p.SupplementaryGID = cmd.User, cmd.Group, cmd.SupplementaryGID
	flags := uint32(shimJoin)
	if terminal {
		flags |= shimOwnStdio
	}
	plan, err := planShim(c.places.root, &p, c.filter, flags, c.runtime.restrict(&p))
	if err != nil {
		return nil, err
	}
	plan.oomScore = int32(c.spec.OOMScoreAdj)
	plan.memlock, plan.profile = c.runtime.memlock, c.spec.AppArmorProfile
	plan.nbacking = uint32(len(c.backing))
	return plan, nil
}

// places are where a container's processes are. They are held open from its start
// on: by the number of its first process another could be found one day.
type places struct {
	root   *os.File // O_PATH
	mounts *os.File // the mount namespace
}

// openPlaces opens the places of a running process. The caller closes them.
func openPlaces(pid int) (p places, err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	if p.root, err = os.OpenFile(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return places{}, fmt.Errorf("open container's root: %w", err)
	}
	if p.mounts, err = os.Open(proc + "/ns/mnt"); err != nil {
		p.close()
		return places{}, fmt.Errorf("open container's mount namespace: %w", err)
	}
	return p, nil
}

func (p places) close() { closeAll([]*os.File{p.root, p.mounts}) }

// openBacking opens the folders of spec.Spec.Backing for the shim's Landlock
// rules. The caller closes them.
func openBacking(folders []string) ([]*os.File, error) {
	var opened []*os.File
	for _, path := range folders {
		folder, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(opened)
			return nil, fmt.Errorf("open folder behind the root: %w", err)
		}
		opened = append(opened, folder)
	}
	return opened, nil
}

// groups are the ways into a container's cgroups. To move a whole process takes a
// lock of the kernel's that is had after an RCU grace period, some milliseconds.
// A process that is made in its cgroup, and a thread that moves itself, go without
// (clone(2), CLONE_INTO_CGROUP, Linux 5.7; cgroup v1's file tasks).
type groups struct {
	files   []*os.File // to write 0 to: tasks of each v1 hierarchy, then cgroup.procs of the v2 one
	unified *os.File   // the v2 one's folder, nil without
}

func (g groups) close() { closeAll(append(g.files, g.unified)) }

// openGroups opens the container's cgroup in every mounted hierarchy. The caller
// closes the groups, after an error too.
func (c *container) openGroups() (g groups, err error) {
	m, err := c.cgroups()
	if err != nil {
		return g, err
	}
	open := func(path string, flags int) *os.File {
		fd, e := unix.Open(path, flags|unix.O_CLOEXEC, 0) // os.OpenFile would try to poll it
		if e != nil {
			err = errors.Join(err, fmt.Errorf("open container's cgroup: %w", &os.PathError{Op: "open", Path: path, Err: e}))
			return nil
		}
		return os.NewFile(uintptr(fd), path)
	}
	unified := ""
	for controller, dir := range m.GetPaths() {
		if controller == "" {
			unified = filepath.Join(dir, c.below())
		} else {
			g.files = append(g.files, open(filepath.Join(dir, "tasks"), unix.O_WRONLY))
		}
	}
	if unified != "" {
		g.files = append(g.files, open(filepath.Join(unified, "cgroup.procs"), unix.O_WRONLY))
		g.unified = open(unified, unix.O_PATH|unix.O_DIRECTORY)
	}
	return g, err
}

// cgroups gives the manager of the container's cgroup, one for its life.
func (c *container) cgroups() (cgroups.Manager, error) {
	c.once.Do(func() {
		c.manager, c.managerErr = manager.New(&cgroups.Cgroup{Path: c.spec.Cgroup, Resources: &cgroups.Resources{SkipDevices: true}})
	})
	return c.manager, c.managerErr
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// entry is a process on its way into a running container.
type entry struct {
	id     string // libcontainer's name of the container
	spec   *spec.Spec
	stdio  supervisor.Stdio
	root   *os.File   // the container's
	files  []*os.File // of the shim, from 3 on: itself, plan, report, backing folders, mount namespace, groups.files
	group  *os.File   // groups.unified
	master *os.File   // of the terminal that start made
}

// enter starts the shim with its plan: in the container's v2 cgroup, or where
// the kernel cannot do that, told to move there.
func (e *entry) enter(plan *shimPlan, pipes *shimPipes) (*os.Process, error) {
	plan.ncgroups = uint32(len(e.files)-shimFiles) - plan.nbacking
	if e.group != nil {
		plan.ncgroups--
	}
	if err := pipes.send(plan); err != nil {
		return nil, err
	}
	started, err := e.start()
	if e.group == nil || !cannotClone(err) {
		return started, err
	}
	closeAll([]*os.File{e.master})
	e.group, e.master = nil, nil
	return e.enter(plan, pipes)
}

// cannotClone tells whether an error may be that clone3(2) is not to be had, or
// not with CLONE_INTO_CGROUP. That a cgroup may have no more processes is EAGAIN.
func cannotClone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOSYS, unix.EINVAL, unix.E2BIG, unix.EOPNOTSUPP, unix.EPERM, unix.EBADF},
		func(errno error) bool { return errors.Is(err, errno) })
}

// shimFiles is how many files there are before groups.files, without the backing folders.
const shimFiles = 4

// start executes the shim from a thread with the container's keyring and
// labels. The thread is of no other use afterwards: it ends with its goroutine.
func (e *entry) start() (started *os.Process, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = e.label(); err == nil {
			started, err = e.execute()
		}
	}()
	<-done
	return started, err
}

// label gives the thread what its children inherit: the container's session
// keyring, and the labels that they have from their next exec on.
func (e *entry) label() error {
	// The name is libcontainer's. A kernel may have no keyrings.
	if _, err := keys.JoinSessionKeyring("_ses." + e.id); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("join session keyring: %w", err)
	}
	if e.spec.SELinuxLabel != "" {
		if err := selinux.SetExecLabel(e.spec.SELinuxLabel); err != nil {
			return fmt.Errorf("set SELinux label: %w", err)
		}
	}
	return nil
}

// execute starts the shim as the leader of a session of its own.
func (e *entry) execute() (*os.Process, error) {
	attr := &os.ProcAttr{Dir: "/", Env: []string{names.ShimVariable + "=4,5"}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if e.group != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(e.group.Fd())
	}
	if e.stdio.Terminal {
		terminal, err := e.openTerminal()
		if err != nil {
			return nil, fmt.Errorf("make terminal: %w", err)
		}
		defer terminal.Close()
		attr.Files = []*os.File{terminal, terminal, terminal}
		attr.Sys.Setctty = true
	} else {
		null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		attr.Files = []*os.File{null, null, null}
		for i, f := range []*os.File{e.stdio.Stdin, e.stdio.Stdout, e.stdio.Stderr} {
			if f != nil {
				attr.Files[i] = f
			}
		}
	}
	attr.Files = append(attr.Files, e.files...)
	return os.StartProcess(fdPath(3), []string{"stager-shim"}, attr)
}

// openTerminal makes a terminal of the container's devpts, and gives the side
// that a process has.
func (e *entry) openTerminal() (*os.File, error) {
	path, err := pathrs.OpenatInRoot(e.root, "dev/pts/ptmx")
	if err != nil {
		return nil, err
	}
	defer path.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(path.Fd()), &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return nil, errors.New("/dev/pts is no devpts")
	}
	if e.master, err = pathrs.Reopen(path, unix.O_RDWR|unix.O_NOCTTY); err != nil {
		return nil, err
	}
	fd := int(e.master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	if e.stdio.Width != 0 && e.stdio.Height != 0 {
		size := &unix.Winsize{Col: e.stdio.Width, Row: e.stdio.Height}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
			return nil, os.NewSyscallError("ioctl TIOCSWINSZ", err)
		}
	}
	// Not by its path, where the app may have put something else (ioctl_tty(2)).
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	return os.NewFile(peer, "terminal"), nil
}
