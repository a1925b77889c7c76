package unionfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

// The benchmarks use a tmpfs. On ext4 a loop of making and removing
// directories measures its avoidance of inodes deleted in the last seconds.

func BenchmarkMountFiveLayers(b *testing.B) {
	for _, d := range []struct {
		name   string
		driver unionfs.Driver
	}{{"overlay", unionfs.Overlay{}}, {"overlay-mount2", unionfs.LegacyOverlay()}, {"copy", unionfs.Copy{}}} {
		b.Run(d.name, func(b *testing.B) { benchmarkMount(b, d.driver, 5) })
	}
}

func BenchmarkMount500Layers(b *testing.B) { benchmarkMount(b, unionfs.Overlay{}, 500) }

func BenchmarkProbe(b *testing.B) {
	dir := benchDir(b)
	scratch, layers := makeDir(b, dir, "scratch"), []string{makeDir(b, dir, "layer")}
	for b.Loop() {
		if _, err := (unionfs.Overlay{}).Probe(scratch, layers); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkMount measures Mount and Unmount on layers of 20 small files each.
func benchmarkMount(b *testing.B, d unionfs.Driver, layers int) {
	dir := benchDir(b)
	r := unionfs.Root{App: "bench", Scratch: makeDir(b, dir, "scratch"), Target: makeDir(b, dir, "target")}
	for i := range layers {
		layer := makeDir(b, dir, fmt.Sprint("layer", i))
		for n := range 20 {
			if err := os.WriteFile(filepath.Join(layer, fmt.Sprint("f", i, "-", n)), []byte("content"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		r.Layers = append(r.Layers, unionfs.Layer{Dir: layer})
	}
	for b.Loop() {
		if err := d.Mount(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		if err := unionfstest.Unmount(r); err != nil {
			b.Fatal(err)
		}
	}
}

// benchDir returns a tmpfs of the benchmark's own.
func benchDir(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			b.Error(err)
		}
	})
	return dir
}

func makeDir(b *testing.B, dir, name string) string {
	b.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		b.Fatal(err)
	}
	return path
}
