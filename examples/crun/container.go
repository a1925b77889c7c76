package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/identity"
	"kurma.io/stager/spec"
)

// container implements spec.OOMReporter.
type container struct {
	runtime *runtime
	spec    spec.Spec
	cgroups cgroups.Manager // to look into the cgroup
	oom     cgroup.OOMWatch
	bundle  string       // its folder
	calls   atomic.Int64 // of crun so far, for the names of files
}

// Start implements spec.Container.
func (c *container) Start(stdio spec.Stdio) (spec.Running, error) {
	p, err := c.start(stdio)
	return p, wrap(fmt.Sprintf("start container %q", c.spec.Name), err)
}

func (c *container) start(stdio spec.Stdio) (spec.Running, error) {
	if err := refuseLinks(c.spec.Root); err != nil {
		return nil, err
	}
	if err := os.Mkdir(c.bundle, 0o700); err != nil {
		return nil, err
	}
	if err := c.makeCgroup(); err != nil {
		return nil, err
	}
	user, err := userOf(c.spec.Root, &c.spec.Process)
	if err != nil {
		return nil, err
	}
	config, err := configOf(&c.spec, user, c.runtime.shm, stdio)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(c.bundle, "config.json"), config); err != nil {
		return nil, err
	}
	if len(c.spec.Process.Args) == 0 {
		return nil, errors.New("no program to execute")
	}
	pid, err := c.call(stdio, c.spec.Files, c.spec.Process.Args[0], "run", "--detach")
	if err != nil {
		return nil, errors.Join(err, c.killAll()) // crun may leave its own process dying
	}
	c.oom.Start(pid, func() (cgroups.Manager, error) { return c.cgroups, nil })
	return process(pid), nil
}

// refuseLinks refuses a root in which a folder that crun mounts a file system on is a symbolic link.
func refuseLinks(root string) error {
	for _, path := range spec.SystemFolders() {
		if _, err := os.Readlink(filepath.Join(root, path)); err == nil {
			return fmt.Errorf("%s in the root is a symbolic link", path)
		}
	}
	return nil
}

// makeCgroup makes the container's cgroup with its limits and its policy of devices.
func (c *container) makeCgroup() error {
	resources := cgroup.Resources(c.spec.Resources)
	if err := cgroup.LimitBlockDevices(c.spec.Resources, resources); err != nil {
		return err
	}
	resources.Devices = deviceRules(&c.spec)
	m, err := manager.New(&cgroups.Cgroup{Path: c.spec.Cgroup, Resources: resources})
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("make container's cgroup: %w", err)
	}
	if err := m.Set(resources); err != nil {
		return fmt.Errorf("limit container's cgroup: %w", err)
	}
	return nil
}

// Exec implements spec.Container.
func (c *container) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	p, err := c.exec(cmd, stdio)
	return p, wrap(fmt.Sprintf("enter container %q", c.spec.Name), err)
}

func (c *container) exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	s := c.spec
	s.Process.Args, s.Process.Env, s.Process.Dir, s.Process.Root = cmd.Args, cmd.Env, cmd.Dir, false
	s.Process.User, s.Process.Group, s.Process.SupplementaryGID = cmd.User, cmd.Group, cmd.SupplementaryGID
	user, err := userOf(c.spec.Root, &s.Process)
	if err != nil {
		return nil, err
	}
	file := "process-" + strconv.FormatInt(c.calls.Add(1), 10)
	defer func() { _ = os.Remove(filepath.Join(c.bundle, file)) }() // the folder goes with the container
	if err := writeJSON(filepath.Join(c.bundle, file), processOf(&s, user, stdio)); err != nil {
		return nil, err
	}
	pid, err := c.call(stdio, nil, cmd.Args[0], "exec", "--detach", "--process", file)
	if err != nil {
		return nil, err
	}
	return process(pid), nil
}

// PIDs implements spec.Container.
func (c *container) PIDs() ([]int, error) { return c.cgroups.GetAllPids() }

// Kill implements spec.Container.
func (c *container) Kill() error {
	_, err := cgroup.SignalAll(c.cgroups)
	return err
}

// killAll kills until no process is left in the cgroup.
func (c *container) killAll() error {
	for deadline := time.Now().Add(execLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if left, err := cgroup.SignalAll(c.cgroups); left == 0 || err != nil {
			return err
		}
	}
	return errors.New("processes survive SIGKILL")
}

// Destroy implements spec.Container. It starts no process, so crun does not clean up.
func (c *container) Destroy() error {
	c.oom.Close()
	err := errors.Join(c.cgroups.Destroy(), os.RemoveAll(c.bundle), os.RemoveAll(filepath.Join(c.runtime.state, c.spec.Name)))
	return wrap(fmt.Sprintf("destroy container %q", c.spec.Name), err)
}

// OOMKilled implements spec.OOMReporter.
func (c *container) OOMKilled() bool { return c.oom.Killed() }

// process implements spec.Running: crun has ended, so nothing is kept for it.
type process int

// PID implements spec.Running.
func (p process) PID() int { return int(p) }

// Release implements spec.Running.
func (process) Release() {}

// wrap says what failed, but for a program that cannot be executed, which says it itself.
func wrap(what string, err error) error {
	var missing *spec.ExecError
	if err == nil || errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// userOf looks a process's user up in the app's root, before crun has mounted anything there.
func userOf(root string, p *spec.Process) (uid [2]uint32, err error) {
	for _, g := range p.SupplementaryGID {
		if g < 0 || g > spec.MaxID {
			return uid, fmt.Errorf("supplementary group %d is not a number from 0 to %d", g, uint32(spec.MaxID))
		}
	}
	if p.Root {
		return uid, nil
	}
	folder, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return uid, err
	}
	defer folder.Close()
	uid[0], uid[1], err = identity.Resolve(folder, p.User, p.Group)
	return uid, err
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
