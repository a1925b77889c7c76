package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/opencontainers/cgroups"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/identity"
	"kurma.io/stager/spec"
)

var _ spec.OOMReporter = (*container)(nil)

// container is an app's.
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
	if err := c.refuseLinks(); err != nil {
		return nil, err
	}
	if c.spec.OwnDevFolder() { // crun would make its own nodes there
		return nil, fmt.Errorf("start container %q: nothing can be mounted over %s", c.spec.Name, spec.DevFolder)
	}
	if err := os.MkdirAll(c.bundle, 0o700); err != nil {
		return nil, err
	}
	if err := c.runtime.pod.MakeContainer(&c.spec); err != nil {
		return nil, err
	}
	uid, gid, err := identity.Of(c.spec.Root, &c.spec.Process)
	if err != nil {
		return nil, err
	}
	config, err := configOf(&c.spec, [2]uint32{uid, gid}, c.runtime.shm, stdio, c.runtime.init.Namespace)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(c.bundle, "config.json"), config); err != nil {
		return nil, err
	}
	if len(c.spec.Process.Args) == 0 {
		return nil, errors.New("no program to execute")
	}
	p, err := c.call(stdio, c.spec.Files, c.spec.Process.Args[0], "run", "--detach")
	if err != nil {
		return nil, errors.Join(err, cgroup.KillAll(c.cgroups)) // crun may leave its own process dying
	}
	c.oom.Start(p.PID(), func() (cgroups.Manager, error) { return c.cgroups, nil })
	return p, nil
}

// refuseLinks refuses a root in which a folder that crun mounts a file system on is a symbolic link.
func (c *container) refuseLinks() error {
	for _, path := range spec.SystemFolders() {
		if _, err := os.Readlink(filepath.Join(c.spec.Root, path)); err == nil {
			return fmt.Errorf("start container %q: %s in the root is a symbolic link", c.spec.Name, path)
		}
	}
	return nil
}

// Exec implements spec.Container.
func (c *container) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	s := c.spec
	s.Process.Args, s.Process.Env, s.Process.Dir, s.Process.Root = cmd.Args, cmd.Env, cmd.Dir, false
	s.Process.User, s.Process.Group, s.Process.SupplementaryGID = cmd.User, cmd.Group, cmd.SupplementaryGID
	uid, gid, err := identity.Of(c.spec.Root, &s.Process)
	if err != nil {
		return nil, err
	}
	file := "process-" + strconv.FormatInt(c.calls.Add(1), 10)
	defer func() { _ = os.Remove(filepath.Join(c.bundle, file)) }() // the folder goes with the container
	if err := writeJSON(filepath.Join(c.bundle, file), processOf(&s, [2]uint32{uid, gid}, stdio)); err != nil {
		return nil, err
	}
	return c.call(stdio, nil, cmd.Args[0], "exec", "--detach", "--process", file)
}

// PIDs implements spec.Container.
func (c *container) PIDs() ([]int, error) { return c.cgroups.GetAllPids() }

// Kill implements spec.Container.
func (c *container) Kill() error { return cgroup.Kill(c.cgroups) }

// Destroy implements spec.Container. It starts no process, so crun does not clean up.
func (c *container) Destroy() error {
	c.oom.Close()
	return errors.Join(c.cgroups.Destroy(), os.RemoveAll(c.bundle), os.RemoveAll(filepath.Join(c.runtime.state, c.spec.Name)))
}

// OOMKilled implements spec.OOMReporter.
func (c *container) OOMKilled() bool { return c.oom.Killed() }

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
