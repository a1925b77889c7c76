package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// The options of the file systems that every container has keep devices, programs and set-user-ID bits out of
// them, and a privileged container may write to /sys, although the daemon has mounted it read-only in the pod's network
// namespace before.
func TestTheSystemsFileSystemsAreRestricted(t *testing.T) {
	r, root, daemons := newRuntime(t), busyboxRoot(t), t.TempDir()
	if err := unix.Mount("sysfs", daemons, "sysfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(daemons, unix.MNT_DETACH) })
	restricted := []string{"rw", "nosuid", "nodev", "noexec"}
	readOnly := []string{"ro", "nosuid", "nodev", "noexec"}
	cgroups := []string{"ro", "nosuid", "nodev"}
	for name, test := range map[string]struct {
		privileged bool
		want       map[string][]string
	}{
		"an app": {false, map[string][]string{
			"/proc": restricted, "/dev/shm": restricted, "/dev/mqueue": restricted, "/sys": readOnly,
			"/dev": {"rw", "nosuid", "size=64k", "mode=755"}, "/dev/pts": {"rw", "nosuid", "noexec", "gid=5", "mode=620", "ptmxmode=666"},
			"/sys/fs/cgroup": cgroups,
		}},
		"a privileged app": {true, map[string][]string{"/proc": restricted, "/sys": restricted}},
	} {
		s := testSpec(root, "cat", "/proc/self/mounts")
		s.Privileged = test.privileged
		text, _ := output(t, r, s)
		mounts := map[string][]string{}
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			mounts[fields[1]] = strings.Split(fields[3], ",")
		}
		for target, options := range test.want {
			for _, option := range options {
				if !slices.Contains(mounts[target], option) {
					t.Errorf("%s: %s is mounted %v, without %s", name, target, mounts[target], option)
				}
			}
		}
		for target, options := range mounts {
			if below, ok := strings.CutPrefix(target, "/sys/fs/cgroup/"); ok && !test.privileged && !isSubset(cgroups, options) {
				t.Errorf("%s: the cgroup %s is mounted %v", name, below, options)
			}
		}
		if slices.Contains(mounts["/dev"], "relatime") {
			t.Errorf("%s: /dev is mounted %v: terminals show when they were used", name, mounts["/dev"])
		}
		if err := os.WriteFile(filepath.Join(daemons, "class/net/lo/ifalias"), nil, 0); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: the daemon's read-only /sys takes a write: %v", name, err)
		}
	}
}

// isSubset reports whether all has each word.
func isSubset(words, all []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(all, word) })
}

// The console is there, is root's, and cannot be opened: the device policy allows it to nobody.
func TestTheConsoleIsThereAndClosed(t *testing.T) {
	text, _ := output(t, newRuntime(t), testSpec(busyboxRoot(t), "sh", "-c",
		`stat -c '%F %t:%T %a' /dev/console; : >/dev/console`))
	if want := "character special file 5:1 620\n"; !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "Operation not permitted\n") {
		t.Errorf("the container says %q", text)
	}
}

// What this machine cannot show, or no process can see: the shim has no capability beyond the app's and its own needs,
// and SELinux gets its label.
func TestConfigurationHasTheLabelAndTheShimsCapabilities(t *testing.T) {
	s := testSpec("/", "true")
	s.SELinuxLabel, s.Process.Capabilities = "system_u:object_r:app_t:s0", []string{"CAP_KILL"}
	c := configOf(&s, "/shm")
	if c.ProcessLabel != s.SELinuxLabel {
		t.Errorf("the label is %q", c.ProcessLabel)
	}
	want := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN"}
	if c.Capabilities == nil {
		t.Fatal("the shim has all capabilities")
	}
	for kind, have := range map[string][]string{"bounding": c.Capabilities.Bounding, "permitted": c.Capabilities.Permitted, "effective": c.Capabilities.Effective} {
		if !slices.Equal(slices.Sorted(slices.Values(have)), want) {
			t.Errorf("the %s set is %v, want %v", kind, have, want)
		}
	}
	if len(c.Capabilities.Inheritable)+len(c.Capabilities.Ambient) != 0 {
		t.Errorf("capabilities are passed on: %v", c.Capabilities)
	}
}

// Flags of a volume are kept on top of the source's own, and nothing else is changed.
func TestVolumesAreMountedAsAsked(t *testing.T) {
	bind := func(change func(*spec.Mount)) spec.Mount {
		m := spec.Mount{Source: "/s", Target: "/t"}
		change(&m)
		return m
	}
	for name, test := range map[string]struct {
		mount      spec.Mount
		flags      int
		attributes uint64
		propagates int
	}{
		"a bind":        {bind(func(*spec.Mount) {}), unix.MS_BIND, 0, unix.MS_SLAVE},
		"recursive":     {bind(func(m *spec.Mount) { m.Recursive = true }), unix.MS_BIND | unix.MS_REC, 0, unix.MS_SLAVE},
		"read-only":     {bind(func(m *spec.Mount) { m.ReadOnly = true }), unix.MS_BIND, unix.MOUNT_ATTR_RDONLY, unix.MS_PRIVATE},
		"nosuid":        {bind(func(m *spec.Mount) { m.NoSuid = true }), unix.MS_BIND, unix.MOUNT_ATTR_NOSUID, unix.MS_PRIVATE},
		"nodev":         {bind(func(m *spec.Mount) { m.NoDev = true }), unix.MS_BIND, unix.MOUNT_ATTR_NODEV, unix.MS_PRIVATE},
		"private":       {bind(func(m *spec.Mount) { m.Propagation = spec.Apart }), unix.MS_BIND, 0, unix.MS_PRIVATE},
		"shared":        {bind(func(m *spec.Mount) { m.Propagation = spec.BothWays }), unix.MS_BIND, 0, unix.MS_SHARED},
		"shared, nodev": {bind(func(m *spec.Mount) { m.Propagation, m.NoDev = spec.BothWays, true }), unix.MS_BIND, unix.MOUNT_ATTR_NODEV, unix.MS_PRIVATE},
	} {
		c := mountOf(test.mount)
		have := uint64(0)
		if c.RecAttr != nil {
			have = c.RecAttr.Attr_set
		}
		propagates := 0
		if len(c.PropagationFlags) > 0 {
			propagates = c.PropagationFlags[0] &^ unix.MS_REC
		}
		if c.Flags != test.flags || have != test.attributes || c.ClearedFlags != 0 || propagates != test.propagates {
			t.Errorf("%s: flags %#x, attributes %#x, propagation %v", name, c.Flags, have, c.PropagationFlags)
		}
	}
}
