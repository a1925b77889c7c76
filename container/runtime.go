// Package container is the runtime that makes containers with runc's libcontainer. Only this
// package knows libcontainer: its input is a spec.Spec, which is plain data, and its output a
// spec.Container.
package container

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // sets device rules; without it the cgroup manager refuses any
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/exeseal"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins and makes namespaces before the Go runtime starts
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/machine"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// Init makes the process a container's first process if libcontainer has started it for that, and
// then does not return. A program that uses this package calls Init before anything else, because
// libcontainer executes the program again for every start.
func Init() {
	if os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		libcontainer.Init()
	}
}

// Runtime implements spec.Runtime.
type Runtime struct {
	log    *slog.Logger
	cgroup string // the pod's

	pod     *cgroup.Pod // from Prepare on
	filters filterCache

	state    string   // libcontainer's folder for each container
	shm      string   // the pod's /dev/shm
	exe      *os.File // this program; no container can write to it
	landlock bool

	hierarchies []string // of cgroups, below the caller's /sys/fs/cgroup; nil if it has none
	folders     string   // where those are attached, see makeCgroupFolders; "" if there is one at most, of version 2

	// memlock is the caller's RLIMIT_MEMLOCK. On cgroup v2, libcontainer removes the
	// process's limit for good when it loads a device policy into the kernel, and the processes
	// started afterwards would have no limit either.
	memlock unix.Rlimit

	starter   *starter      // of commands
	execLimit time.Duration // of a command's shim, and of a look at an app's files
}

// NewRuntime returns a runtime for the pod whose cgroup is the absolute path cgroup below
// every mounted hierarchy. The caller must be root. The runtime changes nothing before Prepare.
func NewRuntime(cgroup string, log *slog.Logger) *Runtime {
	return &Runtime{cgroup: cgroup, log: log, execLimit: spec.ExecLimit}
}

// Prepare implements spec.Runtime. If the kernel cannot prevent apps from reading each
// other through /proc, Prepare logs a warning.
func (r *Runtime) Prepare(dir string, limits spec.Resources) error {
	if err := r.prepare(dir, limits); err != nil {
		return fmt.Errorf("prepare container runtime: %w", err)
	}
	return nil
}

func (r *Runtime) prepare(dir string, limits spec.Resources) (err error) {
	r.state, r.shm = filepath.Join(dir, "containers"), filepath.Join(dir, "shm")
	for path, mode := range map[string]os.FileMode{r.state: 0o700, r.shm: 0o777 | os.ModeSticky} {
		if err := os.Mkdir(path, 0o700); err != nil && (path != r.shm || !errors.Is(err, os.ErrExist)) {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r.memlock); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	// libcontainer passes this one variable to a container's first process. The process
	// works with a single thread, so its Go runtime starts faster with one P.
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		return err
	}
	if r.pod, err = cgroup.NewPod(r.cgroup, limits); err != nil {
		return err
	}
	go r.pod.Hasten() // the rest of the pod's start takes as long
	r.starter = newStarter()
	if r.exe, err = exeseal.CloneSelfExe(r.state); err != nil {
		return err
	}
	if err := watchStages(); err != nil {
		return err
	}
	r.hierarchies = r.pod.Hierarchies(names.CgroupDir)
	if err := r.makeCgroupFolders(dir); err != nil {
		return err
	}
	<-r.starter.locked
	if r.landlock = landlockABI() >= 2; !r.landlock {
		r.log.Warn("the kernel has no Landlock with REFER (Linux 5.19): root apps with equal capabilities can read each other through /proc")
	}
	return nil
}

// Support implements spec.Runtime.
func (r *Runtime) Support() spec.Support { return machine.Support() }

// MakePod implements spec.Runtime.
func (r *Runtime) MakePod() error { return r.pod.Make() }

// KillPod implements spec.Runtime.
func (r *Runtime) KillPod() error { return cgroup.KillPod(r.cgroup) }

// Close implements spec.Runtime.
func (r *Runtime) Close() error {
	var errs []error // of what Prepare made, which may have failed
	if r.pod != nil {
		errs = append(errs, r.pod.Remove())
	}
	if r.exe != nil {
		errs = append(errs, r.exe.Close())
	}
	if r.starter != nil {
		r.starter.close()
	}
	return errors.Join(errs...)
}

// landlockABI returns the version of Landlock in the kernel, 0 for none.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// Container implements spec.Runtime.
func (r *Runtime) Container(s spec.Spec) (spec.Container, error) {
	filter, err := r.filters.of(&s.Process)
	if err != nil {
		return nil, fmt.Errorf("make seccomp filter: %w", err)
	}
	return &container{runtime: r, spec: s, filter: filter, id: rand.Text(), looks: make(chan struct{}, maxLooks)}, nil
}

// container implements spec.Container.
type container struct {
	runtime *Runtime
	spec    spec.Spec
	filter  *filter // nil for none
	// id is the name of the container in libcontainer, and part of its session keyring's name.
	// Names of keyrings apply to the whole machine (keyrings(7)), so no other pod may have the
	// same id.
	id      string
	handle  *libcontainer.Container
	initPID int
	handles handles    // from Start to Destroy
	backing []*os.File // the folders of spec.Backing, O_PATH; likewise
	oom     cgroup.OOMWatch
	started atomic.Bool   // libcontainer no longer holds its lock
	looks   chan struct{} // see look

	once       sync.Once // sets the next two
	manager    cgroups.Manager
	managerErr error
}

// Start implements spec.Container.
func (c *container) Start(stdio spec.Stdio) (spec.Running, error) {
	p, err := c.start(stdio)
	if err != nil {
		return nil, c.failed("start", err)
	}
	return p, nil
}

func (c *container) start(stdio spec.Stdio) (_ spec.Running, err error) {
	if err := checkSystemFolders(c.spec.Root); err != nil {
		return nil, err
	}
	defer starting()()
	config := configOf(&c.spec, c.runtime.shm)
	if !stdio.Terminal {
		config.Devices = append(config.Devices, console())
	}
	if c.spec.Privileged && slices.Contains(c.spec.Process.Capabilities, "CAP_MKNOD") {
		all, err := hostDevices("/sys", config.Devices)
		if err != nil {
			return nil, err
		}
		config.Devices = append(config.Devices, all...)
	}
	if err := cgroup.LimitBlockDevices(c.spec.Resources, config.Cgroups.Resources); err != nil {
		return nil, err
	}
	c.handle, err = libcontainer.Create(c.runtime.state, c.id, config)
	if err != nil {
		return nil, err
	}
	trees, err := c.cgroupTrees()
	defer closeTrees(trees)
	if err != nil {
		return nil, fmt.Errorf("show cgroups: %w", err)
	}
	if c.backing, err = openBacking(c.spec.Backing); err != nil {
		return nil, err
	}
	l, err := c.newFirstProcess(stdio, trees)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := c.handle.Start(&l.process); err != nil {
		return nil, err
	}
	if c.initPID, err = l.process.Pid(); err != nil {
		return nil, err
	}
	if err := c.run(l); err != nil {
		l.kill()
		return nil, err
	}
	c.oom.Start(c.initPID, c.cgroups)
	c.started.Store(true)
	return l.started()
}

// run completes the start of a created container: its root is assembled now, so the user can be
// looked up in it.
func (c *container) run(l *firstProcess) error {
	var err error
	if c.handles, err = openHandles(c.initPID); err != nil {
		return err
	}
	plan, err := l.plan()
	if err != nil {
		return err
	}
	if err := l.pipes.send(plan); err != nil {
		return err
	}
	if err := c.handle.Exec(); err != nil {
		c.releaseFIFO()
		return err
	}
	if err := l.result(); err != nil {
		return err
	}
	if !c.spec.Privileged {
		c.handles.openCgroups()
	}
	c.handles.process.Close()
	c.handles.process = nil
	return nil
}

// releaseFIFO ends the open(2) in which libcontainer leaves a thread if the first process is killed while
// it waits to be executed: an app that kills what starts would otherwise take a thread each time.
func (c *container) releaseFIFO() {
	const fifo = "exec.fifo" // of libcontainer, in the container's folder
	if f, err := unix.Open(filepath.Join(c.runtime.state, c.id, fifo), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(f)
	}
}

// restrict reports whether a process gets a Landlock domain. A domain denies mount(2), so a
// process with CAP_SYS_ADMIN gets none: it is trusted with the whole pod anyway.
func (r *Runtime) restrict(p *spec.Process) bool {
	return r.landlock && !slices.Contains(p.Capabilities, "CAP_SYS_ADMIN")
}

// PIDs implements spec.Container.
func (c *container) PIDs() ([]int, error) {
	if c.handle == nil {
		return nil, nil
	}
	return c.handle.Processes()
}

// Kill implements spec.Container.
func (c *container) Kill() error {
	m, err := c.cgroups()
	if err != nil {
		return err
	}
	if c.started.Load() {
		err := c.handle.Signal(unix.SIGKILL)
		// ENODEV: a cgroup was removed while libcontainer read its processes, so it has none.
		if errors.Is(err, libcontainer.ErrNotRunning) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil || cgroup.HasKill(m) {
			return err
		}
	}
	// libcontainer stops the processes first, so that none forks, but does not say which signals are denied.
	_, err = cgroup.SignalAll(m)
	return err
}

// Destroy implements spec.Container.
func (c *container) Destroy() error {
	c.handles.close()
	closeAll(c.backing)
	c.oom.Close()
	if c.handle == nil {
		return nil
	}
	if err := c.handle.Destroy(); err != nil {
		return fmt.Errorf("destroy container %q: %w", c.spec.Name, err)
	}
	return nil
}

var _ spec.OOMReporter = (*container)(nil)

// OOMKilled implements spec.OOMReporter. Another SIGKILL of the main process cannot
// be distinguished from an out-of-memory kill, when it comes within moments of the
// out-of-memory kill of another process.
func (c *container) OOMKilled() bool { return c.oom.Killed() }

// process implements spec.Running.
type process struct {
	pid     int
	release func()
}

// PID implements spec.Running.
func (p *process) PID() int { return p.pid }

// Release implements spec.Running. Wait returns ECHILD, which is expected here: the reaper
// has already collected the child.
func (p *process) Release() { p.release() }
