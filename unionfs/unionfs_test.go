package unionfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

func TestMain(m *testing.M) { unionfstest.Main(m) }

func TestSmoke(t *testing.T) {
	for _, d := range []unionfs.Driver{unionfs.Overlay{}, unionfs.LegacyOverlay(), unionfs.Copy{}} {
		dir := t.TempDir()
		for _, n := range []string{"s", "t", "a", "b"} {
			os.Mkdir(filepath.Join(dir, n), 0o755)
		}
		os.WriteFile(filepath.Join(dir, "a/x"), []byte("A"), 0o644)
		os.WriteFile(filepath.Join(dir, "b/x"), []byte("B"), 0o644)
		if err := d.Probe(filepath.Join(dir, "s"), []string{filepath.Join(dir, "a")}); err != nil {
			t.Error(err)
		}
		r := unionfs.Root{App: "x", Scratch: filepath.Join(dir, "s"), Target: filepath.Join(dir, "t"),
			Layers: []unionfs.Layer{{Dir: filepath.Join(dir, "a")}, {Dir: filepath.Join(dir, "b")}}}
		if err := d.Mount(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "t/x")); string(got) != "A" {
			t.Error(string(got), err)
		}
		if err := unionfs.Unmount(r); err != nil {
			t.Error(err)
		}
	}
}
