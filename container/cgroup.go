package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// podCgroup is the cgroup that holds those of all apps of the pod, in every
// mounted hierarchy. Its limits bound the apps' sum.
type podCgroup struct {
	manager cgroups.Manager
	path    string
	limits  *cgroups.Resources
}

// newPodCgroup prepares the cgroup of that absolute path below every mounted
// hierarchy, for make. One that is left over is taken over, its processes killed.
func newPodCgroup(path string, limits spec.Resources) (*podCgroup, error) {
	resources := cgroupResources(limits)
	if err := limitBlockDevices(limits, resources); err != nil {
		return nil, fmt.Errorf("limit pod's cgroup %s: %w", path, err)
	}
	// The device policy is each app's; here it would be a second, wrong one.
	resources.SkipDevices = true
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: resources})
	if err != nil {
		return nil, fmt.Errorf("make pod's cgroup %s: %w", path, err)
	}
	g := &podCgroup{manager: m, path: path, limits: resources}
	if m.Exists() {
		if err := g.kill(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// make makes the cgroup, with its limits. It is called once, before any app's is made.
func (g *podCgroup) make() error {
	if err := g.manager.Apply(-1); err != nil {
		return fmt.Errorf("make pod's cgroup %s: %w", g.path, err)
	}
	if err := g.manager.Set(g.limits); err != nil {
		return fmt.Errorf("limit pod's cgroup %s: %w", g.path, err)
	}
	return nil
}

// killPod kills what is in the pod's cgroup of that path, see podCgroup.kill.
func killPod(path string) error {
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return fmt.Errorf("find pod's cgroup %s: %w", path, err)
	}
	return (&podCgroup{manager: m}).kill()
}

// below is where the container's first process is in the version 2 hierarchy,
// from the container's cgroup on. An app that hands controllers on to cgroups of
// its own, as systemd does, has left the container's cgroup for one below, and
// nobody can enter the one above any more (cgroups(7), "no internal processes").
func (c *container) below() string {
	paths, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", c.initPID))
	if err != nil {
		return "" // it has ended, and so has the container
	}
	_, below, _ := strings.Cut(paths[""]+"/", c.spec.Cgroup+"/")
	return below
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
func (g *podCgroup) kill() error {
	// The kernel misses nobody who forks meanwhile, from Linux 5.14 on and where there is
	// a hierarchy of version 2. A freezer would do as well, but whoever is killed
	// before he thaws it leaves processes that cannot end.
	if unified := g.manager.Path(""); unified != "" {
		_ = os.WriteFile(filepath.Join(unified, "cgroup.kill"), []byte("1"), 0)
	}
	left, err := signalAll(g.manager)
	for deadline := time.Now().Add(killLimit); left > 0 && err == nil; left, err = signalAll(g.manager) {
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

// signalAll sends SIGKILL to every process in a cgroup and below, and returns how
// many there were. Those that are forked meanwhile it may miss.
func signalAll(m cgroups.Manager) (int, error) {
	pids, err := m.GetAllPids()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
	return len(pids), nil
}

// remove removes the cgroup, and what is below it, with retries while
// processes that have been killed are still on their way out. It is no error where there is none.
func (g *podCgroup) remove() error {
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove pod's cgroup: %w", err)
	}
	return nil
}
