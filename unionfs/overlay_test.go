package unionfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

func TestOverlayRefusesTooManyLayers(t *testing.T) {
	r := unionfs.Root{App: "db", Scratch: t.TempDir(), Target: t.TempDir()}
	for i := range 501 {
		r.Layers = append(r.Layers, unionfs.Layer{Dir: fmt.Sprintf("/layers/%d", i)})
	}
	err := unionfs.Overlay{}.Mount(t.Context(), r)
	want := `overlay: 501 layers are more than the 500 that can be stacked`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if entries, err := os.ReadDir(r.Scratch); err != nil || len(entries) > 0 {
		t.Errorf("scratch directory holds %v, %v", entries, err)
	}
}

// overlayAt mounts a plain overlay with lower directory lower and returns its path.
func overlayAt(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	for _, name := range []string{"scratch", "root"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	r := unionfs.Root{App: "outer", Layers: []unionfs.Layer{{Dir: lower}}, Scratch: dir + "/scratch", Target: dir + "/root"}
	must(t, unionfs.Overlay{}.Mount(t.Context(), r))
	t.Cleanup(func() { must(t, unionfstest.Unmount(r)) })
	return r.Target
}

// The stager's own root is on overlay.
func TestSelectWorksOnOverlay(t *testing.T) {
	root := overlayAt(t, t.TempDir())
	choice, err := unionfs.Select(unionfs.Drivers(), "", root, nil)
	must(t, err)
	if why := fmt.Sprint(choice.Rejected); choice.Driver.Name() != "copy" || !strings.HasPrefix(why, "overlay in ") || !strings.Contains(why, "; aufs in ") {
		t.Errorf("with scratch on overlay: %s after %v", choice.Driver.Name(), choice.Rejected)
	}
	_, err = unionfs.Select(unionfs.Drivers(), "overlay", root, nil)
	if err == nil || !strings.Contains(err.Error(), `"overlay"`) || !strings.Contains(err.Error(), root) {
		t.Errorf("overlay forced on a scratch directory on overlay: %v", err)
	}
}

// Layers may lie on an overlay, but not on an overlay on an overlay.
func TestSelectAcceptsLayersOnOneOverlay(t *testing.T) {
	once := overlayAt(t, t.TempDir())
	twice := overlayAt(t, once)
	for layer, want := range map[string]string{once: "overlay", twice: "copy"} {
		choice, err := unionfs.Select(unionfs.Drivers(), "", t.TempDir(), []string{t.TempDir(), layer})
		must(t, err)
		if choice.Driver.Name() != want {
			t.Errorf("layer %s: %s after %v, want %s", layer, choice.Driver.Name(), choice.Rejected, want)
		}
	}
}

func TestSelectReturnsTheNamedDriver(t *testing.T) {
	for name, want := range map[string]string{"": "overlay", "overlay": "overlay", "copy": "copy"} {
		choice, err := unionfs.Select(unionfs.Drivers(), name, t.TempDir(), []string{t.TempDir()})
		must(t, err)
		if choice.Driver.Name() != want || choice.Rejected != nil {
			t.Errorf("Select(%q) is %s after %v", name, choice.Driver.Name(), choice.Rejected)
		}
	}
}

func TestSelectReportsItsErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	tests := []struct{ name, driver, scratch, says string }{
		{"unknown", "btrfs", t.TempDir(), `"btrfs"`},
		{"upper case", "Overlay", t.TempDir(), `"Overlay"`},
		{"no scratch", "overlay", missing, missing},
		{"nothing works", "", missing, missing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			choice, err := unionfs.Select(unionfs.Drivers(), tt.driver, tt.scratch, nil)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, %v; want an error of one line that says %s", choice, err, tt.says)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A pod with its own users mounts as one of them, on layers with mapped owners: only a trial shows whether overlay takes
// those. The scratch directory is read-only, so that a trial fails.
func TestOverlayIsTriedForOtherUsers(t *testing.T) {
	scratch := t.TempDir()
	if err := unix.Mount("scratch", scratch, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(scratch, unix.MNT_DETACH) })
	probe := func() error {
		_, err := unionfs.Overlay{}.Probe(scratch, nil)
		return err
	}
	if err := probe(); err != nil {
		t.Errorf("as user 0: %v", err)
	}
	if err := thread.As(100000, probe); !errors.Is(err, unix.EROFS) {
		t.Errorf("as another user: %v", err)
	}
}
