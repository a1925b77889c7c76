package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	devices "github.com/opencontainers/cgroups/devices/config"
)

func TestHostDevicesAreThoseOfTheKernel(t *testing.T) {
	sys := t.TempDir()
	for path, text := range map[string]string{
		"char/4:1":    "MAJOR=4\nMINOR=1\nDEVNAME=tty1\n",
		"char/1:3":    "MAJOR=1\nMINOR=3\nDEVNAME=null\nDEVMODE=0666\n",
		"char/13:64":  "MAJOR=13\nMINOR=64\nDEVNAME=input/event0\nDEVMODE=0640\n",
		"char/5:2":    "MAJOR=5\nMINOR=2\nDEVNAME=ptmx\n",
		"char/9:1":    "MAJOR=9\nMINOR=1\nDEVNAME=../../etc/passwd\n",
		"char/9:2":    "MAJOR=x\nMINOR=1\nDEVNAME=odd\n",
		"char/9:3":    "DEVNAME=numberless\n",
		"char/9:4":    "MAJOR=9\nMINOR=4\n",
		"block/254:0": "MAJOR=254\nMINOR=0\nDEVNAME=vda\nDEVTYPE=disk\n",
	} {
		dir := filepath.Join(sys, "dev", path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := hostDevices(sys, []*devices.Device{{Path: "/dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	node := func(path string, mode os.FileMode, kind devices.Type, major, minor int64) *devices.Device {
		return &devices.Device{Path: path, FileMode: mode, Rule: devices.Rule{Type: kind, Major: major, Minor: minor, Permissions: "rwm", Allow: true}}
	}
	want := []*devices.Device{
		node("/dev/etc/passwd", 0o600, devices.CharDevice, 9, 1), // no name leads out of /dev
		node("/dev/input/event0", 0o640, devices.CharDevice, 13, 64),
		node("/dev/tty1", 0o600, devices.CharDevice, 4, 1),
		node("/dev/vda", 0o600, devices.BlockDevice, 254, 0),
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
	if found, err := hostDevices(filepath.Join(sys, "none"), nil); err != nil || found != nil {
		t.Errorf("without sysfs: %v, %v", found, err)
	}
}

// The /dev of a privileged container has every node that the kernel has made, and its processes can
// open them; its cgroups are writable. Another container has neither.
func TestAPrivilegedContainerHasAllDevices(t *testing.T) {
	r := newRuntime(t)
	for privileged, want := range map[bool]string{
		true:  "major 1 minor b\nopened\nwritable\n",
		false: "no node\nread-only\n",
	} {
		s := testSpec(busyboxRoot(t), "sh", "-c", `
			if [ -c /dev/kmsg ]; then stat -c "major %t minor %T" /dev/kmsg; head -c 1 </dev/kmsg >/dev/null && echo opened; else echo no node; fi
			for dir in /sys/fs/cgroup /sys/fs/cgroup/memory; do
				[ -e $dir/cgroup.procs ] || continue
				if mkdir $dir/stager-test-$$ 2>/dev/null; then rmdir $dir/stager-test-$$; echo writable; else echo read-only; fi
			done`)
		s.Privileged = privileged
		if privileged {
			s.Process.Capabilities = r.Support().Capabilities
		}
		if text, _ := output(t, r, s); text != want {
			t.Errorf("privileged %v: %q, want %q", privileged, text, want)
		}
		if !privileged {
			continue
		}
		s = testSpec(busyboxRoot(t), "sh", "-c", "cd /dev && find . -type c -o -type b | sort")
		s.Privileged, s.Process.Capabilities = true, r.Support().Capabilities
		text, _ := output(t, r, s)
		all, err := hostDevices("/sys", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if !strings.Contains(text, "."+strings.TrimPrefix(d.Path, "/dev")+"\n") {
				t.Errorf("%s is missing in a privileged container", d.Path)
			}
		}
	}
}
