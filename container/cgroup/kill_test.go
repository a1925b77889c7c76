package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"kurma.io/stager/tests/surroundings"
)

// A stager that is killed while it has frozen a cgroup leaves processes that the next one ends.
func TestFrozenProcessesOfADeadStagerAreKilled(t *testing.T) {
	path := fmt.Sprintf("/stager-test-frozen-%d", os.Getpid())
	m, err := manager.New(&cgroups.Cgroup{Path: path + "/app", Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	if err := errors.Join(m.Apply(sleeper.Process.Pid), m.Freeze(cgroups.Frozen)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = m.Freeze(cgroups.Thawed)
		_ = sleeper.Process.Kill()
		parent, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
		if err := errors.Join(err, parent.Destroy()); err != nil {
			t.Error(err)
		}
	}()
	if err := KillPod(path); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(surroundings.Patience):
		t.Error("the process has not ended")
	}
}

// version1 is a cgroup as a machine without version 2 has it.
type version1 struct{ cgroups.Manager }

func (v version1) Path(hierarchy string) string {
	if hierarchy == "" {
		return ""
	}
	return v.Manager.Path(hierarchy)
}

// A frozen app can be killed, and one that forks faster than its processes are listed, by one call.
func TestKillReachesWhatIsFrozenAndWhatForks(t *testing.T) {
	const forks = "f() { (f &); }; for i in $(seq 100); do f & done; wait"
	for name, test := range map[string]struct {
		script string
		freeze bool
		of     func(cgroups.Manager) cgroups.Manager
	}{
		"frozen":            {"exec sleep 1000", true, func(m cgroups.Manager) cgroups.Manager { return m }},
		"frozen, version 1": {"exec sleep 1000", true, func(m cgroups.Manager) cgroups.Manager { return version1{m} }},
		"forks":             {forks, false, func(m cgroups.Manager) cgroups.Manager { return m }},
		"forks, version 1":  {forks, false, func(m cgroups.Manager) cgroups.Manager { return version1{m} }},
	} {
		if cgroups.IsCgroup2UnifiedMode() && strings.HasSuffix(name, "version 1") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m, err := manager.New(&cgroups.Cgroup{
				Path:      fmt.Sprintf("/stager-test-kill-%d", os.Getpid()),
				Resources: &cgroups.Resources{},
			})
			if err != nil {
				t.Fatal(err)
			}
			enter, begin, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			first := exec.Command("sh", "-c", "read go; "+test.script)
			first.Stdin = enter
			if err := errors.Join(first.Start(), enter.Close()); err != nil {
				t.Fatal(err)
			}
			if err := m.Apply(first.Process.Pid); err != nil {
				_ = first.Process.Kill() // nothing would end what it forks
				t.Fatal(err)
			}
			if err := begin.Close(); err != nil {
				t.Fatal(err)
			}
			go func() { _ = first.Wait() }()
			if test.freeze {
				if err := m.Freeze(cgroups.Frozen); err != nil {
					t.Fatal(err)
				}
			} else {
				surroundings.Eventually(t, "there are many", func() bool {
					pids, err := m.GetAllPids()
					return err == nil && len(pids) >= 50
				})
			}
			if err := Kill(test.of(m)); err != nil {
				t.Error(err)
			}
			surroundings.Eventually(t, "none is left", func() bool {
				pids, err := m.GetAllPids()
				return err == nil && len(pids) == 0
			})
			if err := errors.Join(KillAll(m), m.Destroy()); err != nil {
				t.Error(err)
			}
		})
	}
}

// hiding is a cgroup of version 1 with processes that it does not list.
type hiding struct {
	cgroups.Manager
	dir string
}

func (hiding) GetAllPids() ([]int, error)     { return nil, nil }
func (h hiding) Path(hierarchy string) string { return map[string]string{"pids": h.dir}[hierarchy] }

func TestProcessesOfADeadNamespaceAreAwaited(t *testing.T) {
	h := hiding{dir: t.TempDir()}
	count := filepath.Join(h.dir, "pids.current")
	if err := os.WriteFile(count, []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gone := make(chan time.Time, 1)
	time.AfterFunc(50*time.Millisecond, func() {
		gone <- time.Now()
		_ = os.WriteFile(count, []byte("0\n"), 0o644)
	})
	if err := (&PodGroup{manager: h}).kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	default:
		t.Error("kill has not waited")
	}
}

// Apps cannot take all tasks of a cgroup around them and the stager.
func TestThePodLeavesTasksToTheStager(t *testing.T) {
	const none = -1
	for name, test := range map[string]struct {
		outer, inner string // pids.max, "" for no file
		asked, want  int64
	}{
		"no limit around":         {"", "max", 16384, 16384},
		"a large limit":           {"100000", "max", 16384, 16384},
		"a smaller limit":         {"max", "1000", 16384, 872},
		"the smaller one of two":  {"500", "1000", 16384, 372},
		"a limit and none asked":  {"1000", "max", none, 872},
		"a limit of a few":        {"100", "max", 16384, 50},
		"a lower one asked":       {"1000", "max", 7, 7},
		"no controller, no limit": {"", "", none, none},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "outer")
			if err := os.MkdirAll(filepath.Join(dir, "inner"), 0o755); err != nil {
				t.Fatal(err)
			}
			for path, text := range map[string]string{"": test.outer, "inner": test.inner} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, path, "pids.max"), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			limits := new(cgroups.Resources)
			if test.asked != none {
				limits.PidsLimit = &test.asked
			}
			err := leaveRoomForStager(limits, func(controller string) string {
				return map[string]string{"pids": filepath.Join(dir, "inner", "apps")}[controller]
			})
			if err != nil {
				t.Fatal(err)
			}
			got := int64(none)
			if limits.PidsLimit != nil {
				got = *limits.PidsLimit
			}
			if got != test.want {
				t.Errorf("limit %d, want %d", got, test.want)
			}
		})
	}
}

// Where the cgroup around the pod's has a memory limit, of either version, the pod's is lower.
func TestTheStagerKeepsMemory(t *testing.T) {
	for name, test := range map[string]struct {
		file, outer string
		asked, want int64
	}{
		"no limit around":            {"memory.max", "max", 1 << 30, 1 << 30},
		"none of version 1":          {"memory.limit_in_bytes", "9223372036854771712", 0, 0},
		"a limit and none asked":     {"memory.max", "1073741824", 0, 1<<30 - 16<<20},
		"of version 1":               {"memory.limit_in_bytes", "1073741824", 1 << 30, 1<<30 - 16<<20},
		"a limit of a few MiB":       {"memory.max", "33554432", 0, 24 << 20},
		"a lower one asked":          {"memory.max", "1073741824", 1 << 20, 1 << 20},
		"no controller and no limit": {"", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.file != "" {
				if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.outer+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			limits := &cgroups.Resources{Memory: test.asked}
			err := leaveRoomForStager(limits, func(controller string) string {
				return map[string]string{"memory": filepath.Join(dir, "apps")}[controller]
			})
			if err != nil {
				t.Fatal(err)
			}
			if limits.Memory != test.want {
				t.Errorf("limit %d, want %d", limits.Memory, test.want)
			}
		})
	}
}

// A limit around the pod that cannot be read is not taken for none: apps would leave no room to the stager.
func TestALimitThatCannotBeReadIsAnError(t *testing.T) {
	for _, file := range []string{"pids.max", "memory.max", "memory.limit_in_bytes"} {
		for name, spoil := range map[string]func(path string) error{
			"unreadable": func(path string) error { return os.Mkdir(path, 0o700) },
			"no number":  func(path string) error { return os.WriteFile(path, []byte("x\n"), 0o600) },
		} {
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			err := leaveRoomForStager(new(cgroups.Resources), func(string) string { return filepath.Join(dir, "apps") })
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", name, file, err)
			}
		}
	}
}
