package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/capability"

	"kurma.io/stager/spec"
)

func TestBlockLimitsFollowTheHierarchy(t *testing.T) {
	for name, want := range map[string]spec.BlockLimits{
		"blkio/blkio.throttle.read_bps_device": spec.DirectBlockLimits, "cgroup.controllers": spec.FullBlockLimits, "other": spec.NoBlockLimits,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("cpu io memory\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := blockLimitsAt(dir); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestControlledAtFindsTheController(t *testing.T) {
	for path, want := range map[string]bool{
		"cpu,cpuacct/cpu.shares": true, "memory/cpu.shares": true, "cpu.shares": false, "cpu/cpu.stat": false,
		"cgroup.controllers": true, "unified/cgroup.controllers": false,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("cpuset cpu io\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := controlledAt(dir, "cpu.shares", "cpu"); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestLimitsOfTasksAreFoundAtTheRootOfAHierarchy(t *testing.T) {
	for path, want := range map[string]bool{
		"pids/cgroup.procs": true, "misc,pids/pids.max": true, "pids/other": false, "cgroup.controllers": true, "memory/cgroup.procs": false,
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("memory pids\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := pidLimitsAt(dir); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestWithheldNamesWhatTheStagerLacks(t *testing.T) {
	cgroups := t.TempDir()
	if err := os.Mkdir(filepath.Join(cgroups, "memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	var all []string
	supported, err := capability.ListSupported()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range supported {
		all = append(all, "CAP_"+strings.ToUpper(c.String()))
	}
	lacking := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == "CAP_MKNOD" || c == "CAP_PERFMON" })
	tests := map[string]struct {
		have    []string
		cgroups string
		want    []string
	}{
		"nothing":      {all, cgroups, nil},
		"capabilities": {lacking, cgroups, []string{"CAP_MKNOD", "CAP_PERFMON", "the machine's devices in /dev"}},
		"no cgroups":   {all, t.TempDir(), []string{"/sys/fs/cgroup"}},
		"no folder":    {all, filepath.Join(cgroups, "none"), []string{"/sys/fs/cgroup"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, withheld(test.have, test.cgroups)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
