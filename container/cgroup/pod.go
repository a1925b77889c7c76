// Package cgroup makes and limits the cgroup of a pod, kills the processes in it, and watches a
// container's cgroup for out-of-memory kills. Every runtime on a machine with cgroups needs this.
// The package needs neither cgo nor a runtime's library.
package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/cgroupfile"
	"kurma.io/stager/spec"
)

// PodGroup is the parent of the cgroups of all apps of the pod, in every mounted hierarchy. Its limits
// apply to the sum of the apps.
type PodGroup struct {
	manager cgroups.Manager
	path    string
	folders map[string]string // of each controller; Remove empties the manager's own map
	limits  *cgroups.Resources
}

// NewPodGroup prepares the cgroup of that absolute path below every mounted hierarchy, for Make. If
// the cgroup exists already, NewPodGroup kills the processes in it and reuses it.
func NewPodGroup(path string, limits spec.Resources) (*PodGroup, error) {
	resources := Resources(limits)
	if err := LimitBlockDevices(limits, resources); err != nil {
		return nil, fmt.Errorf("limit pod's cgroup %s: %w", path, err)
	}
	// Each app has a device policy; one for the pod would wrongly restrict them.
	resources.SkipDevices = true
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: resources})
	if err != nil {
		return nil, fmt.Errorf("make pod's cgroup %s: %w", path, err)
	}
	if err := leaveRoomForStager(resources, m.Path); err != nil {
		return nil, fmt.Errorf("limit pod's cgroup %s: %w", path, err)
	}
	g := &PodGroup{manager: m, path: path, folders: maps.Clone(m.GetPaths()), limits: resources}
	if m.Exists() {
		if err := g.kill(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// stagerTasks is how many processes and threads apps leave to the stager below the limit of a cgroup around both. A Go
// runtime that cannot make a thread ends the program.
const stagerTasks = 128

// stagerMemory is how many bytes apps leave to the stager likewise: five times what it uses at rest, because apps make
// it use more, as by requests to the metadata service, which bounds their memory. Slow attachments can take more than
// that (package supervisor/output). Apps that use up their memory reach their own limit first, and the kernel then
// looks among them for a process to kill: not at the supervisor, nor at init, whose oom_score_adj an app of user 0 that
// mounts another /proc can raise.
const stagerMemory = 16 << 20

// leaveRoomForStager lowers the limits of tasks and memory of the pod's cgroup below those of the cgroups around it
// that can be seen. path returns its folder in the hierarchy of a controller, "" for none.
func leaveRoomForStager(limits *cgroups.Resources, path func(controller string) string) error {
	around := func(controller, file string) (int64, error) {
		dir := path(controller)
		if dir == "" {
			return cgroupfile.NoLimit, nil
		}
		return cgroupfile.LowestLimit(filepath.Dir(dir), file)
	}
	tasks, err := around("pids", "pids.max")
	if err != nil {
		return err
	}
	if tasks != cgroupfile.NoLimit {
		room := max(tasks-stagerTasks, tasks/2, 1)
		if limits.PidsLimit == nil || *limits.PidsLimit <= 0 || *limits.PidsLimit > room {
			limits.PidsLimit = &room
		}
	}
	for _, file := range []string{"memory.max", "memory.limit_in_bytes"} { // of version 2 and 1
		memory, err := around("memory", file)
		if err != nil {
			return err
		}
		if memory != cgroupfile.NoLimit {
			room := max(memory-stagerMemory, memory/4*3)
			if limits.Memory <= 0 || limits.Memory > room {
				limits.Memory = room
			}
		}
	}
	return nil
}

// Make makes the cgroup, with its limits. Call it once, before any app's cgroup is made.
func (g *PodGroup) Make() error { return makeCgroup(g.manager, g.path, g.limits) }

func makeCgroup(m cgroups.Manager, path string, limits *cgroups.Resources) error {
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", path, err)
	}
	if err := m.Set(limits); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", path, err)
	}
	return nil
}

// Hierarchies returns the hierarchies that have the pod's cgroup, as the names below dir, where all
// are mounted: "" for version 2 alone; otherwise the folder of each, and each link to one.
func (g *PodGroup) Hierarchies(dir string) []string {
	mounted := map[string]bool{}
	for _, path := range g.folders {
		mounted[strings.TrimSuffix(path, g.path)] = true
	}
	if mounted[dir] {
		return []string{""}
	}
	entries, _ := os.ReadDir(dir) // nothing is mounted there then
	var out []string
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			at, _ = filepath.EvalSymlinks(at) // one that leads nowhere is none
		}
		if mounted[at] {
			out = append(out, e.Name())
		}
	}
	return out
}

// Manager returns a manager of the cgroup of that absolute path below every hierarchy that has the pod's. It looks for
// none, which would take as long as ten system calls for each controller.
func (g *PodGroup) Manager(path string) (cgroups.Manager, error) {
	return g.managerOf(path, &cgroups.Resources{SkipDevices: true})
}

// MakeBelow makes the cgroup of that absolute path below every hierarchy that has the pod's, with its limits and its
// policy of devices.
func (g *PodGroup) MakeBelow(path string, limits *cgroups.Resources) error {
	m, err := g.managerOf(path, limits)
	if err != nil {
		return err
	}
	return makeCgroup(m, path, limits)
}

func (g *PodGroup) managerOf(path string, limits *cgroups.Resources) (cgroups.Manager, error) {
	folders := map[string]string{}
	for controller, folder := range g.folders {
		folders[controller] = strings.TrimSuffix(folder, g.path) + path
	}
	return manager.NewWithPaths(&cgroups.Cgroup{Path: path, Resources: limits}, folders)
}

// KillPod kills the processes in the pod's cgroup of that path, see PodGroup.kill.
func KillPod(path string) error {
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return fmt.Errorf("find pod's cgroup %s: %w", path, err)
	}
	return (&PodGroup{manager: m}).kill()
}

const (
	// killLimit limits how long kill waits for the processes to end: a process in
	// uninterruptible sleep does not end.
	killLimit = 5 * time.Second
	// killInterval is the time between two looks of kill at the cgroup.
	killInterval = time.Millisecond
)

// kill sends SIGKILL to every process in the cgroup and below, and returns when none is left. If
// some are left after killLimit, it returns an error. It is for a pod without its own PID
// namespace; the end of a PID namespace kills all processes in it.
func (g *PodGroup) kill() error {
	// From Linux 5.14 on, in a version 2 hierarchy, the kernel also kills processes that are
	// forked meanwhile.
	if unified := g.manager.Path(""); unified != "" {
		_ = os.WriteFile(filepath.Join(unified, "cgroup.kill"), []byte("1"), 0)
	}
	thaw(g.manager) // a stager that was killed may have left it frozen, see Kill
	if err := KillAll(g.manager); err != nil {
		return fmt.Errorf("kill pod's processes: %w", err)
	}
	g.awaitHidden()
	return nil
}

// KillAll sends SIGKILL to the processes in a cgroup and below until none is left. If some are left after killLimit, it
// returns an error.
func KillAll(m cgroups.Manager) error {
	left, err := signalAll(m, unix.Kill)
	for deadline := time.Now().Add(killLimit); left > 0 && err == nil; left, err = signalAll(m, unix.Kill) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d survive SIGKILL", left)
		}
		time.Sleep(killInterval) // cgroup v1 does not notify when a cgroup is empty
	}
	return err
}

// hiddenLimit limits how long kill waits for processes that it cannot see.
const hiddenLimit = 2 * time.Second

// awaitHidden waits until the cgroup counts no process (pids.current). Version 1 lists none of a dead
// stager's PID namespace, where the kernel kills them, and this stager must not use their root file systems before
// that. The count includes zombies until their parents reap them, so awaitHidden waits for a moment only.
func (g *PodGroup) awaitHidden() {
	file := filepath.Join(g.manager.Path("pids"), "pids.current")
	for deadline := time.Now().Add(hiddenLimit); time.Now().Before(deadline); time.Sleep(killInterval) {
		if count, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(count)) == "0" {
			return
		}
	}
}

// signalAll sends SIGKILL to every process in a cgroup and below, and returns the number of processes. It can miss
// processes that are forked meanwhile. A process whose AppArmor profile takes no signals from the caller, without
// "signal (receive) peer=unconfined", is an error: it survives, and so does its cgroup. The kernel's cgroup.kill
// (version 2, Linux 5.14) asks no profile.
func signalAll(m cgroups.Manager, kill func(pid int, sig unix.Signal) error) (int, error) {
	pids, err := m.GetAllPids()
	// Reading the processes of a cgroup that is removed meanwhile returns ENODEV.
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return 0, err
	}
	err = nil
	for _, pid := range pids {
		// Version 2 lists a process of another PID namespace as 0, which kill(2) takes for the
		// caller's own process group.
		if pid <= 0 {
			continue
		}
		// After another error it has ended: root needs no permission (kill(2)).
		if e := kill(pid, unix.SIGKILL); errors.Is(e, unix.EACCES) {
			err = fmt.Errorf("kill process %d: the app's AppArmor profile, or another security module, "+
				"denies the stager's signals: %w", pid, e)
		}
	}
	return len(pids), err
}

// hasKill reports whether the kernel kills the processes of a cgroup by itself (cgroups(7), cgroup.kill).
func hasKill(m cgroups.Manager) bool {
	unified := m.Path("")
	if unified == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(unified, "cgroup.kill"))
	return err == nil
}

// Remove removes the cgroup and the cgroups below it, and retries while killed processes are still
// ending. It is not an error if the cgroup does not exist.
func (g *PodGroup) Remove() error {
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove pod's cgroup: %w", err)
	}
	return nil
}
