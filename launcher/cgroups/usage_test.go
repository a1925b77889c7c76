package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

// fakeGroup makes the files of a group, by their paths below it.
func fakeGroup(t *testing.T, files map[string]string) string {
	t.Helper()
	mount := t.TempDir()
	for name, text := range files {
		path := filepath.Join(mount, "pod", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return mount
}

func TestUsageIsReadOfBothVersions(t *testing.T) {
	cgroups.TestMode = true // the folders are no cgroups
	t.Cleanup(func() { cgroups.TestMode = false })
	v2 := fakeGroup(t, map[string]string{
		"apps/a/cgroup.procs": "12\n7\n0\n", "apps/a/below/cgroup.procs": "9\n",
		"apps/a/cpu.stat":       "usage_usec 1500000\nuser_usec 1\n",
		"apps/a/memory.current": "1000\n", "apps/a/memory.stat": "anon 1\ninactive_file 300\n", "apps/a/memory.max": "max\n",
		"apps/a/pids.current": "3\n",
		"apps/a/io.stat":      "8:0 rbytes=10 wbytes=20 rios=1 wios=2\n8:16 rbytes=1 wbytes=2 rios=1 wios=2\n",
	})
	cpu := fakeGroup(t, map[string]string{"apps/a/cgroup.procs": "7\n12\n", "apps/a/cpuacct.usage": "2500000000\n"})
	memory := fakeGroup(t, map[string]string{
		"apps/a/memory.usage_in_bytes": "5000\n", "apps/a/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\n", "apps/a/memory.limit_in_bytes": "65536\n",
	})
	blkio := fakeGroup(t, map[string]string{"apps/a/blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 5\nTotal 35\n"})
	empty := fakeGroup(t, map[string]string{"apps/a/cgroup.procs": "7\n", "apps/a/memory.limit_in_bytes": "x"})
	for name, tt := range map[string]struct {
		hierarchies []Hierarchy
		want        Usage
		pids        []int
	}{
		"v2":             {[]Hierarchy{{Mount: v2, V2: true}}, Usage{CPU: 1500 * time.Millisecond, Memory: 700, MemoryLimit: Unknown, Read: 11, Written: 22, PIDs: 3}, []int{7, 9, 12}},
		"v1":             {[]Hierarchy{{Mount: cpu}, {Mount: memory}, {Mount: blkio}}, Usage{CPU: 2500 * time.Millisecond, Memory: 4000, MemoryLimit: 65536, Read: 15, Written: 20, PIDs: Unknown}, []int{7, 12}},
		"no controllers": {[]Hierarchy{{Mount: empty, V2: true}, {Mount: empty}}, Usage{CPU: Unknown, Memory: Unknown, MemoryLimit: Unknown, Read: Unknown, Written: Unknown, PIDs: Unknown}, []int{7}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Group{Path: "pod", Hierarchies: tt.hierarchies}
			have, ok := g.Usage("apps/a")
			if diff := cmp.Diff(tt.want, have); diff != "" || !ok {
				t.Errorf("%v %s", ok, diff)
			}
			if _, ok := g.Usage("apps/none"); ok {
				t.Error("a group that is not there has a use")
			}
			pids, err := g.PIDsBelow("apps/a")
			if diff := cmp.Diff(tt.pids, pids); diff != "" || err != nil {
				t.Errorf("processes: %v %s", err, diff)
			}
			if pids, err := g.PIDsBelow("apps/none"); len(pids) > 0 || err != nil {
				t.Errorf("a group that is not there has processes %v, %v", pids, err)
			}
		})
	}
}

func TestOOMKillsOfTheGroupAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		path, text string
		want       bool
	}{
		"version 1":             {"pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", true},
		"none":                  {"pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false},
		"version 2, the leaf":   {"pod/leaf/memory.events.local", "oom 1\noom_kill 1\n", true},
		"version 2, the others": {"pod/memory.events", "oom 1\noom_kill 1\n", false},
		"an app":                {"pod/apps/memory.oom_control", "oom_kill 1\n", false},
	} {
		mount := t.TempDir()
		path := filepath.Join(mount, tt.path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(tt.text), 0o600)); err != nil {
			t.Fatal(err)
		}
		g := &Group{Path: "pod", Hierarchies: []Hierarchy{{Mount: mount}}}
		if got := g.OOMKilled("leaf"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
