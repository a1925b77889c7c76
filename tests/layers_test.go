package tests

import (
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/build"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// tinyLayers makes n folders named as image IDs, the topmost first. Each has /top with its number, and
// a file that no other layer has. The last is a copy of busybox by hard links.
func tinyLayers(b *harness.Machine, n int) []string {
	b.T.Helper()
	dir := b.Folder("layers", 0o755)
	var layers []string
	for i := range n {
		layer := filepath.Join(dir, fmt.Sprintf("sha512-%x", sha512.Sum512(fmt.Append(nil, b.Cgroup, i))))
		if err := os.Mkdir(layer, 0o755); err != nil {
			b.T.Fatal(err)
		}
		for name, text := range map[string]string{"top": fmt.Sprint(i), fmt.Sprintf("only-%d", i): ""} {
			if err := os.WriteFile(filepath.Join(layer, name), []byte(text), 0o644); err != nil {
				b.T.Fatal(err)
			}
		}
		layers = append(layers, layer)
	}
	bottom := layers[n-1]
	if err := os.MkdirAll(filepath.Join(bottom, "bin"), 0o755); err != nil {
		b.T.Fatal(err)
	}
	b.CopyFile(filepath.Join(b.BusyboxLayer(), "bin/busybox"), filepath.Join(bottom, "bin/busybox"))
	return layers
}

// layerDrivers returns the drivers that work on this kernel: few kernels have aufs.
func layerDrivers(t *testing.T) []string {
	t.Helper()
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	drivers := []string{"overlay", "copy"}
	if strings.Contains(string(known), "\taufs\n") {
		drivers = append(drivers, "aufs")
	}
	return drivers
}

// An app deletes, links and moves files of its layers. aufs does that in the
// layers' own folders, with the app's credentials.
func TestAppsChangeFilesOfTheirLayers(t *testing.T) {
	t.Parallel()
	for _, driver := range layerDrivers(t) {
		t.Run(driver, func(t *testing.T) {
			b := suite.NewMachine(t)
			layers := tinyLayers(b, 5)
			doc := harness.DocumentOf(harness.PodOf(suite.Command("a", "/bin/busybox", "sh", "-c",
				"rm /only-3 && ln /top /hard && mv /only-2 /bin/moved && mv /top /tip && ln /bin/busybox /box && "+
					"[ ! -e /only-3 ] && [ ! -e /only-2 ] && [ -e /bin/moved ] && [ ! -e /top ] && [ /hard -ef /tip ] && [ /box -ef /bin/busybox ] && "+
					"echo all changed; exec sleep 1000")), layers...)
			doc["stagerConfig"] = map[string]any{"graphStorage": driver, "gracePeriod": "0s"}
			d := b.Direct(doc, layers...)
			d.StartReady()
			d.Sees("a", "stdout F all changed\n")
			d.Stop()
		})
	}
}

func TestLayersStayAsTheyAre(t *testing.T) {
	t.Parallel()
	type layering struct {
		n      int
		driver string
	}
	tests := []layering{
		{1, "overlay"}, {29, "overlay"}, {128, "overlay"}, {500, "overlay"}, {1, "copy"}, {29, "copy"}, {128, "copy"},
	}
	if slices.Contains(layerDrivers(t), "aufs") {
		tests = append(tests, layering{1, "aufs"}, layering{29, "aufs"}, layering{126, "aufs"})
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", tt.n, tt.driver), func(t *testing.T) {
			b := suite.NewMachine(t)
			layers := tinyLayers(b, tt.n)
			before, err := listLayers(layers)
			if err != nil {
				t.Fatal(err)
			}
			doc := harness.DocumentOf(harness.PodOf(suite.Command("a", "/bin/busybox", "sh", "-c",
				"echo top $(cat /top) of $(ls / | grep -c only-); echo changed >/top; exec sleep 1000")), layers...)
			doc["stagerConfig"] = map[string]any{"graphStorage": tt.driver, "gracePeriod": "0s"}
			d := b.Direct(doc, layers...)
			d.StartReady()
			d.Sees("a", fmt.Sprintf("stdout F top 0 of %d\n", tt.n))
			d.Stop()
			after, err := listLayers(layers)
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range harness.Compare(before, after) {
				t.Error(change)
			}
		})
	}
}

func listLayers(layers []string) (map[string]harness.FileFacts, error) {
	all := make(map[string]harness.FileFacts)
	for _, layer := range layers {
		if err := harness.AddFiles(all, layer, true); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func TestTooManyLayersAreRefused(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	layers := tinyLayers(b, 501)
	doc := harness.DocumentOf(harness.PodOf(suite.Command("a", "/bin/busybox", "true")), layers...)
	doc["stagerConfig"] = map[string]any{"graphStorage": "overlay"}
	d := b.Direct(doc, layers...)
	d.Start(nil, nil)
	if code := d.Wait(); code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
	messages := strings.TrimSpace(d.Messages())
	last := messages[strings.LastIndexByte(messages, '\n')+1:]
	for _, word := range []string{`"a"`, "501", "500"} {
		if !strings.Contains(last, word) {
			t.Errorf("the last message is %q, want %q in it", last, word)
		}
	}
}

// The launcher resolves a chain of images. The topmost image overrides the others,
// and the files of every layer are there.
func TestDependenciesAreResolved(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	const n = 40
	files := []string{filepath.Join(suite.Images, "busybox.aci")}
	for i := range n {
		below := fmt.Sprintf("tests/layer%d", i-1)
		if i == 0 {
			below = "kurma.io/stager/tests/busybox"
		}
		files = append(files, image(b, fmt.Sprintf("layer%d", i), fmt.Sprintf(
			`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/layer%d","dependencies":[{"imageName":%q}],
			"app":{"exec":["/bin/sh","-c","cat /top; ls / | grep -c only-; exec sleep 1000"],"user":"0","group":"0"}}`, i, below),
			func(root string) error {
				return errors.Join(os.WriteFile(filepath.Join(root, "top"), fmt.Appendln(nil, i), 0o644),
					os.WriteFile(filepath.Join(root, fmt.Sprintf("only-%d", i)), nil, 0o644))
			}))
	}
	b.Must(append([]string{"image", "import"}, files...)...)
	b.LayersAreNow()
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "deep", fmt.Sprintf("tests/layer%d", n-1)))
	app := fmt.Sprintf("layer%d", n-1)
	p.Sees(app, fmt.Sprintf("%d\n%d\n", n-1, n))
	p.Stop()
}

// Two images of a dependency tree have path whitelists: the app sees the files that every whitelist on
// the way selects.
func TestPathWhitelistHidesOtherPaths(t *testing.T) {
	clause.Covers(t, "C-FS-04", "C-FS-05")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	fill := func(names ...string) func(string) error {
		return func(root string) error {
			var errs []error
			for _, name := range names {
				path := filepath.Join(root, name)
				errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644))
			}
			return errors.Join(errs...)
		}
	}
	base := image(b, "base", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/base",
		"pathWhitelist":["/d","/d/kept","/d/dropped-above"]}`, fill("d/kept", "d/dropped-above", "d/dropped-here"))
	busybox, err := os.ReadFile(filepath.Join(b.BusyboxLayer(), "bin/busybox"))
	if err != nil {
		t.Fatal(err)
	}
	top := image(b, "top", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/top",
		"dependencies":[{"imageName":"tests/base"}],
		"pathWhitelist":["/bin","/bin/busybox","/d","/d/kept","/d/own"],
		"app":{"exec":["/bin/busybox","sh","-c","cd /d; echo *; ls /d/unlisted /bin/unlisted; exec sleep 1000"],"user":"0","group":"0"}}`,
		func(root string) error {
			return errors.Join(fill("d/own", "d/unlisted", "bin/unlisted")(root),
				os.WriteFile(filepath.Join(root, "bin/busybox"), busybox, 0o755))
		})
	b.Must("image", "import", base, top)
	b.LayersAreNow()
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "white", "tests/top"))
	p.Sees("top", "kept own\n")
	p.Stop()
}

// image builds an image whose root fill has filled; owners are kept.
func image(b *harness.Machine, name, manifest string, fill func(root string) error) string {
	b.T.Helper()
	root := b.Folder(name+".root", 0o755)
	if err := fill(root); err != nil {
		b.T.Fatal(err)
	}
	entries, err := build.Tree(root, true)
	if err != nil {
		b.T.Fatal(err)
	}
	path := filepath.Join(b.Dir, name+".aci")
	file, err := os.Create(path)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := errors.Join(build.Write(file, []byte(manifest), entries), file.Close(), os.RemoveAll(root)); err != nil {
		b.T.Fatal(err)
	}
	return path
}
