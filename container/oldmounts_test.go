package container

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/failing"
)

// Libcontainer's starts do without mount_setattr(2), which Linux has since 5.12, and restrict as much.
func TestLibcontainerStartsWithoutMountAttributes(t *testing.T) {
	t.Setenv(directVariable, "")
	runtime.LockOSThread() // the thread ends with the test's goroutine, and its filter with the thread
	if err := (failing.Call{Number: unix.SYS_MOUNT_SETATTR, Errno: unix.ENOSYS}).Fail(); err != nil {
		t.Fatal(err)
	}
	r, volume := newRuntime(t), t.TempDir()
	if r.attributes {
		t.Fatal("mount_setattr(2) works")
	}
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := testSpec(busyboxRoot(t), "sh", "-c", `cat /volume/file
for file in /volume/new $(find /sys/fs/cgroup -name cgroup.procs); do (: >$file) 2>/dev/null && echo "wrote $file"; done
find /sys/fs/cgroup -name cgroup.procs | grep -c . >/dev/null && echo cgroups`)
	s.Mounts = []spec.Mount{{Source: volume, Target: "/volume", ReadOnly: true, Recursive: true}}
	if got, status := output(t, r, s); got != "text\ncgroups\n" || status != 0 {
		t.Errorf("%q, %v", got, status)
	}
	s.Privileged = true
	if got, _ := output(t, r, s); !strings.Contains(got, "wrote /sys/fs/cgroup/") {
		t.Errorf("a privileged app: %q", got)
	}
	inner := filepath.Join(volume, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("inner", inner, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(inner, unix.MNT_DETACH) })
	c := containerOf(t, r, s)
	if _, err := c.Start(spec.Stdio{}); err == nil || !strings.Contains(err.Error(), "mount at /volume is read-only, nosuid or nodev, and has mounts inside") {
		t.Errorf("a mount with another inside: %v", err)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}
