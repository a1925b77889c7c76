package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/spec"
)

// container implements spec.Container.
type container struct {
	runtime *Runtime
	spec    spec.Spec
	// direct says that init starts the first process. libcontainer joins no user namespace, and cannot make a PID
	// namespace below the pod's.
	direct bool
	filter *filter // nil for none
	// id is the name of the container in libcontainer, and part of its session keyring's name.
	// Names of keyrings apply to the whole machine (keyrings(7)), so no other pod may have the
	// same id.
	id      string
	handle  *libcontainer.Container
	initPID int
	handles handles    // from Start to Destroy
	backing []*os.File // the folders of spec.Backing, O_PATH; likewise
	users   *os.File   // the user namespace, nil for the supervisor's; likewise
	oom     cgroup.OOMWatch
	looks   chan struct{} // see look
	alone   bool          // from Start on, see isAlone

	cgroups func() (cgroups.Manager, error) // the manager of its cgroup, always the same one

	killed chan struct{} // closed by the first Kill, which ends the waits for files that do not answer
	kill   func()        // closes it
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
	config, err := c.configure(stdio)
	if err != nil {
		return nil, err
	}
	if c.alone, err = isAlone(&c.spec); err != nil {
		return nil, err
	}
	if c.direct {
		return c.startDirect(config, stdio)
	}
	if !c.runtime.attributes {
		if err := withoutAttributes(config.Mounts); err != nil {
			return nil, err
		}
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
	started, err := l.follow()
	if err != nil {
		return nil, err
	}
	c.initPID = started.PID()
	err = c.run(l, started)
	if err == nil {
		err = l.sendTerminal()
	}
	if err != nil {
		l.end(started)
		return nil, err
	}
	c.oom.Start(c.initPID, c.cgroups)
	return started, nil
}

// configure decides the container for a start.
func (c *container) configure(stdio spec.Stdio) (*configs.Config, error) {
	config := configOf(&c.spec, c.runtime.shm)
	for kind, name := range map[configs.NamespaceType]string{
		configs.NEWPID: "pid", configs.NEWIPC: "ipc", configs.NEWUTS: "uts",
	} {
		if path := c.runtime.init.Namespace(name); path != "" {
			config.Namespaces.Add(kind, path)
		}
	}
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
	return config, cgroup.LimitBlockDevices(c.spec.Resources, config.Cgroups.Resources)
}

// run completes the start of a created container: its root is assembled now, so the user can be
// looked up in it.
func (c *container) run(l *firstProcess, started spec.Running) error {
	var err error
	if c.handles, err = openHandles(started, c.spec.OwnPIDs); err != nil {
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
	return c.becomes(l)
}

// becomes waits until the first process has become the app.
func (c *container) becomes(l *firstProcess) error {
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
	path := filepath.Join(c.runtime.state, c.id, fifo)
	if f, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(f)
	}
}

// restricts reports whether a process of the container gets a Landlock domain, which keeps it from the other processes
// that it sees. A domain denies mount(2), also in a user namespace of the app's own. So a process with CAP_SYS_ADMIN
// gets none: it is trusted with the whole pod anyway. Neither does one that sees no others, without CAP_SYS_PTRACE: a
// process that starts there is not dumpable, and has capabilities that the app lacks (ptrace(2)).
func (c *container) restricts(p *spec.Process) bool {
	has := func(name string) bool { return slices.Contains(p.Capabilities, name) }
	alone := c.alone && !has("CAP_SYS_PTRACE")
	return c.runtime.landlock && !alone && !has("CAP_SYS_ADMIN")
}

// PIDs implements spec.Container.
func (c *container) PIDs() ([]int, error) {
	m, err := c.cgroups()
	if err != nil {
		return nil, err
	}
	pids, err := m.GetAllPids()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil // the cgroup is gone, or going
	}
	return pids, err
}

// Kill implements spec.Container.
func (c *container) Kill() error {
	c.kill()
	m, err := c.cgroups()
	if err != nil {
		return err
	}
	return cgroup.Kill(m)
}

// Destroy implements spec.Container.
func (c *container) Destroy() error {
	c.handles.close()
	closeAll(append(c.backing, c.users))
	c.oom.Close()
	if c.direct {
		return c.removeCgroup()
	}
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
