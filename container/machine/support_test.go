package machine

import (
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/spec"
)

func TestBlockLimitsAt(t *testing.T) {
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

func TestControlledAt(t *testing.T) {
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
