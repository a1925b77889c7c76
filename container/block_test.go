package container

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
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

// onDisk returns a file of n bytes on a block device: on a loop device if the temporary folder is
// on none.
func onDisk(t *testing.T, n int) string {
	t.Helper()
	folder := t.TempDir()
	var stat unix.Stat_t
	if err := unix.Stat(folder, &stat); err != nil {
		t.Fatal(err)
	}
	if unix.Major(stat.Dev) == 0 {
		folder = loopDisk(t, 16*int64(n))
	}
	path := filepath.Join(folder, "data")
	if err := os.WriteFile(path, make([]byte, n), 0o644); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	return path
}

// loopDisk mounts a file system of that size on a loop device, until the end of the test. The test's
// mount namespace is its own.
func loopDisk(t *testing.T, size int64) string {
	t.Helper()
	image, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := image.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/bin/busybox", "mke2fs", "-F", image.Name()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	device := attachLoop(t, image)
	defer device.Close()
	folder := t.TempDir()
	if err := unix.Mount(device.Name(), folder, "ext4", 0, ""); err != nil {
		t.Fatalf("mount %s: %v", device.Name(), err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// attachLoop returns a loop device of the file. When the device is neither open nor mounted, the
// kernel detaches it.
func attachLoop(t *testing.T, image *os.File) *os.File {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	for range 10 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) { // another process has taken it
			t.Fatalf("attach %s: %v", device.Name(), err)
		}
	}
	t.Fatal("other processes take every free loop device")
	return nil
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
// cache: those to a file count for the cgroup that wrote to it first (Linux,
// admin-guide/cgroup-v2, Writeback), so the container makes its own file.
func TestBlockTransfersAreSlowedDown(t *testing.T) {
	clause.Covers(t, "C-BLK-01")
	path := onDisk(t, 1<<18)
	r, root := newRuntime(t), busyboxRoot(t)
	type transfer struct {
		args  []string
		limit spec.Resources
	}
	read, write := []string{"dd", "if=/data", "of=/dev/null", "bs=16k", "iflag=direct"}, []string{"dd", "if=/dev/zero", "of=/disk/new", "bs=16k", "count=16", "conv=fsync"}
	transfers := map[string]transfer{"bandwidth": {read, spec.Resources{BlockBandwidth: 1 << 20}}, "operations": {read, spec.Resources{BlockIOPS: 64}}}
	if cgroups.IsCgroup2UnifiedMode() {
		transfers["bandwidth through the page cache"] = transfer{write, spec.Resources{BlockBandwidth: 1 << 20}}
	}
	for name, transfer := range transfers {
		t.Run(name, func(t *testing.T) {
			s := testSpec(root, transfer.args...)
			s.Mounts = []spec.Mount{{Source: path, Target: "/data"}, {Source: filepath.Dir(path), Target: "/disk"}}
			s.Resources = transfer.limit
			begun := time.Now()
			text, status := output(t, r, s)
			if took := time.Since(begun); status.ExitStatus() != 0 || took < 125*time.Millisecond {
				t.Errorf("exit status %d after %v:\n%s", status.ExitStatus(), took, text)
			}
		})
	}
}
