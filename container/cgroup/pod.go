// Package cgroup makes and limits the cgroup of a pod, kills what is in it, and watches a
// container's cgroup for out-of-memory kills: what every runtime on a machine with cgroups
// has in common. It needs neither cgo nor a runtime's library.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// Pod is the cgroup that holds those of all apps of the pod, in every
// mounted hierarchy. Its limits bound the apps' sum.
type Pod struct {
	manager cgroups.Manager
	path    string
	limits  *cgroups.Resources
}

// NewPod prepares the cgroup of that absolute path below every mounted
// hierarchy, for Make. One that is left over is taken over, its processes killed.
func NewPod(path string, limits spec.Resources) (*Pod, error) {
	resources := Resources(limits)
	if err := LimitBlockDevices(limits, resources); err != nil {
		return nil, fmt.Errorf("limit pod's cgroup %s: %w", path, err)
	}
	// The device policy is each app's; here it would be a second, wrong one.
	resources.SkipDevices = true
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: resources})
	if err != nil {
		return nil, fmt.Errorf("make pod's cgroup %s: %w", path, err)
	}
	g := &Pod{manager: m, path: path, limits: resources}
	if m.Exists() {
		if err := g.kill(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Make makes the cgroup, with its limits. It is called once, before any app's is made.
func (g *Pod) Make() error {
	if err := g.manager.Apply(-1); err != nil {
		return fmt.Errorf("make pod's cgroup %s: %w", g.path, err)
	}
	if err := g.manager.Set(g.limits); err != nil {
		return fmt.Errorf("limit pod's cgroup %s: %w", g.path, err)
	}
	return nil
}

// KillPod kills what is in the pod's cgroup of that path, see Pod.kill.
func KillPod(path string) error {
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return fmt.Errorf("find pod's cgroup %s: %w", path, err)
	}
	return (&Pod{manager: m}).kill()
}

const (
	// killLimit bounds how long Kill waits for what it has killed: a process in
	// uninterruptible sleep does not end.
	killLimit = 5 * time.Second
	// killAgain is how often Kill looks.
	killAgain = time.Millisecond
)

// kill sends SIGKILL to every process in the cgroup and below and returns when
// none is left, or with an error when some are still there after a few seconds. It
// is for a pod without a PID namespace of its own, whose end would do the same.
func (g *Pod) kill() error {
	// The kernel misses nobody who forks meanwhile, from Linux 5.14 on and where there is
	// a hierarchy of version 2. A freezer would do as well, but whoever is killed
	// before he thaws it leaves processes that cannot end.
	if unified := g.manager.Path(""); unified != "" {
		_ = os.WriteFile(filepath.Join(unified, "cgroup.kill"), []byte("1"), 0)
	}
	left, err := SignalAll(g.manager)
	for deadline := time.Now().Add(killLimit); left > 0 && err == nil; left, err = SignalAll(g.manager) {
		if time.Now().After(deadline) {
			return fmt.Errorf("kill pod's processes: %d survive SIGKILL", left)
		}
		time.Sleep(killAgain) // cgroups v1 tells nobody when one is empty
	}
	if err != nil {
		return fmt.Errorf("kill pod's processes: %w", err)
	}
	return nil
}

// SignalAll sends SIGKILL to every process in a cgroup and below, and returns how
// many there were. Those that are forked meanwhile it may miss.
func SignalAll(m cgroups.Manager) (int, error) {
	pids, err := m.GetAllPids()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
	return len(pids), nil
}

// Remove removes the cgroup, and what is below it, with retries while
// processes that have been killed are still on their way out. It is no error where there is none.
func (g *Pod) Remove() error {
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove pod's cgroup: %w", err)
	}
	return nil
}
