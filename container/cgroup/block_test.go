package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"

	"kurma.io/stager/spec"
)

func TestBlockDevicesAreThoseOfTheKernel(t *testing.T) {
	sys := t.TempDir()
	if got, err := BlockDevices(sys); got != nil || err != nil {
		t.Errorf("without any: %v, %v", got, err)
	}
	for name, dev := range map[string]string{"sda": "8:0\n", "nvme0c0n1": "", "vda": "254:16\n"} {
		dir := filepath.Join(sys, "block", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dev == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "dev"), []byte(dev), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := BlockDevices(sys)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][2]int64{{8, 0}, {254, 16}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestThrottleCapsOperations(t *testing.T) {
	var out cgroups.Resources
	throttle(spec.Resources{BlockIOPS: 1 << 40}, &out, [][2]int64{{8, 0}})
	if got := out.BlkioThrottleReadIOPSDevice[0].String(); got != "8:0 4294967295" || out.BlkioThrottleReadBpsDevice != nil {
		t.Errorf("rule %q, bandwidth %v", got, out.BlkioThrottleReadBpsDevice)
	}
}
