package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pod whose monitor was killed is started again like any other, and the dead one goes.
func TestADeadPodIsRestarted(t *testing.T) {
	h := newHost(t)
	dead := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	h.killMonitor(dead)
	fresh := strings.TrimSpace(h.run("restart", "p"))
	if all := h.ps(); len(all) != 1 || all[0].UUID != fresh || all[0].State != "running" {
		t.Errorf("ps: %+v, want %s alone", all, fresh)
	}
	h.run("rm", "--force", "p")
}

// A restart that cannot write the new pod does not stop the old one, and leaves nothing.
func TestARestartOnAFullDiskStopsNothing(t *testing.T) {
	h := newHost(t)
	dir := filepath.Join(h.dir, "pods")
	if err := errors.Join(os.Mkdir(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.run("rm", "--force", "p")
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	for _, left := range []int64{0, 16 << 10, 64 << 10} { // bytes that the disk has left
		fill := filepath.Join(dir, "fill")
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fill, make([]byte, int64(disk.Bavail)*disk.Bsize-left), 0o600); err != nil {
			t.Fatal(err)
		}
		r := h.try("restart", "p")
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		all := h.ps()
		if left == 0 && (r.code != 1 || !strings.Contains(r.stderr, "no space left on device")) {
			t.Errorf("restart: %+v", r)
		}
		if r.code != 0 && (len(all) != 1 || all[0].UUID != uuid || all[0].State != "running") {
			t.Errorf("%d bytes left: %+v; ps: %+v, want %s alone", left, r, all, uuid)
		}
		if r.code == 0 {
			uuid = strings.TrimSpace(r.stdout)
		}
	}
}
