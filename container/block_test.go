package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

// onDisk is a file of n bytes on a block device, or "" where there is none to
// write to.
func onDisk(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	if unix.Major(stat.Dev) == 0 {
		return ""
	}
	return path
}

// rulesOf reads the limits back from the kernel.
func rulesOf(t *testing.T, cgroup, v1 string) string {
	t.Helper()
	path := filepath.Join("/sys/fs/cgroup/blkio", cgroup, v1)
	if cgroups.IsCgroup2UnifiedMode() {
		path = filepath.Join("/sys/fs/cgroup", cgroup, "io.max")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryBlockDeviceIsLimited(t *testing.T) {
	clause.Covers(t, "C-BLK-01")
	devices, err := cgroup.BlockDevices("/sys")
	if err != nil || len(devices) == 0 {
		t.Fatalf("the machine has %d block devices: %v", len(devices), err)
	}
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sleep", "1000")
	s.Resources = spec.Resources{BlockBandwidth: 1 << 20, BlockIOPS: 1000}
	startSleeper(t, r, s)
	bandwidth, operations := rulesOf(t, s.Cgroup, "blkio.throttle.write_bps_device"), rulesOf(t, s.Cgroup, "blkio.throttle.read_iops_device")
	for _, d := range devices {
		for want, have := range map[string]string{
			fmt.Sprintf("%d:%d 1048576\n", d[0], d[1]):                                         bandwidth,
			fmt.Sprintf("%d:%d 1000\n", d[0], d[1]):                                            operations,
			fmt.Sprintf("%d:%d rbps=1048576 wbps=1048576 riops=1000 wiops=1000\n", d[0], d[1]): bandwidth,
		} {
			if strings.Contains(want, "rbps") == cgroups.IsCgroup2UnifiedMode() && !strings.Contains(have, want) {
				t.Errorf("no %q in\n%s", want, have)
			}
		}
	}
}

// A quarter of a megabyte takes at least a quarter of a second at a megabyte a
// second, and sixteen reads as long at 64 a second; the first slice of some tens
// of milliseconds is granted at once. Version 2 also counts writes through the page
// cache.
func TestBlockTransfersAreSlowedDown(t *testing.T) {
	clause.Covers(t, "C-BLK-01")
	path := onDisk(t, 1<<18)
	if path == "" {
		t.Skip("the temporary folder is on no block device of this machine") //nolint:forbidigo // nothing to slow down there
	}
	r, root := newRuntime(t), busyboxRoot(t)
	type transfer struct {
		args  []string
		limit spec.Resources
	}
	read, write := []string{"dd", "if=/data", "of=/dev/null", "bs=16k", "iflag=direct"}, []string{"dd", "if=/dev/zero", "of=/data", "bs=16k", "count=16", "conv=fsync"}
	transfers := map[string]transfer{"bandwidth": {read, spec.Resources{BlockBandwidth: 1 << 20}}, "operations": {read, spec.Resources{BlockIOPS: 64}}}
	if cgroups.IsCgroup2UnifiedMode() {
		transfers["bandwidth through the page cache"] = transfer{write, spec.Resources{BlockBandwidth: 1 << 20}}
	}
	for name, transfer := range transfers {
		t.Run(name, func(t *testing.T) {
			s := testSpec(root, transfer.args...)
			s.Mounts = []spec.Mount{{Source: path, Target: "/data", Type: "bind"}}
			s.Resources = transfer.limit
			begun := time.Now()
			text, status := output(t, r, s)
			if took := time.Since(begun); status.ExitStatus() != 0 || took < 125*time.Millisecond {
				t.Errorf("exit status %d after %v:\n%s", status.ExitStatus(), took, text)
			}
		})
	}
}
