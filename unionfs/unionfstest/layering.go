package unionfstest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/unionfs"
)

func topmostWins(b *bench) {
	root := b.stack(
		[]item{file("a", "0")},
		[]item{file("a", "1"), file("b", "1")},
		[]item{file("a", "2"), file("b", "2"), file("c", "2")},
	)
	wantShape(b.t, root, map[string]string{"a": "file 0", "b": "file 1", "c": "file 2"})
}

func directoriesMerge(b *bench) {
	root := b.stack(
		[]item{dir("d/e").perm(0o700), file("d/e/0", "0")},
		[]item{dir("d/e").perm(0o777), file("d/e/1", "1")},
		[]item{file("d/e/2", "2"), file("d/f/2", "2")},
	)
	wantShape(b.t, root, map[string]string{
		"d": "dir", "d/e": "dir", "d/e/0": "file 0", "d/e/1": "file 1", "d/e/2": "file 2",
		"d/f": "dir", "d/f/2": "file 2",
	})
	if got := statOf(b.t, root+"/d/e").Mode & 0o7777; got != 0o700 {
		b.t.Errorf("mode of a merged directory is %o, want the topmost layer's 700", got)
	}
}

// replacement puts every type of file over every other.
func replacement(b *bench) {
	kinds := map[string]func(path, layer string) []item{
		"dir":     func(p, l string) []item { return []item{dir(p), file(p+"/"+l, l)} },
		"file":    func(p, l string) []item { return []item{file(p, l)} },
		"linkdir": func(p, l string) []item { return []item{symlink(p, "elsewhere")} },
		"linkbad": func(p, l string) []item { return []item{symlink(p, "nowhere-"+l)} },
		"fifo":    func(p, _ string) []item { return []item{fifo(p)} },
		"char":    func(p, _ string) []item { return []item{char(p, 1, 3)} },
	}
	upper, lower, alone := []item{}, []item{file("elsewhere/x", "x")}, []item{file("elsewhere/x", "x")}
	for u, above := range kinds {
		for l, below := range kinds {
			path := u + "-over-" + l
			upper = append(upper, above(path, "upper")...)
			lower = append(lower, below(path, "lower")...)
			alone = append(alone, above(path, "upper")...)
		}
	}
	alone = append(alone, file("dir-over-dir/lower", "lower"))
	wantShape(b.t, b.stack(upper, lower), shape(b.t, b.layer(alone...).Dir))
}

func symlinkReplaced(b *bench) {
	root := b.stack(
		[]item{dir("lib"), file("lib/u", "u")},
		[]item{symlink("lib", "usr/lib"), file("usr/lib/l", "l")},
	)
	wantShape(b.t, root, map[string]string{
		"lib": "dir", "lib/u": "file u", "usr": "dir", "usr/lib": "dir", "usr/lib/l": "file l",
	})
}

func symlinksStayInside(b *bench) {
	outside := b.layer(file("victim", "v"), dir("sub")).Dir
	b.stack(
		[]item{file("abs/victim", "evil"), file("abs/new", "evil"), file("up/new", "evil"), file("sub", "evil")},
		[]item{symlink("abs", outside), symlink("up", "../../../../../.."+outside), symlink("sub", outside+"/sub")},
		[]item{symlink("abs/deep", outside), file("up/deep/new", "evil")},
	)
	wantShape(b.t, outside, map[string]string{"victim": "file v", "sub": "dir"})
}

func fileBetween(b *bench) {
	root := b.stack(
		[]item{file("d/0", "0")},
		[]item{file("d", "1")},
		[]item{file("d/2", "2")},
	)
	wantShape(b.t, root, map[string]string{"d": "dir", "d/0": "file 0"})
}

func overlayMarks(b *bench) {
	root := b.stack(
		[]item{
			char("gone", 0, 0), char("gonedir", 0, 0), dir("opaque").with("trusted.overlay.opaque", "y"),
			file("opaque/0", "0"), file("plain/0", "0"), dir(".").with("trusted.overlay.opaque", "y"),
		},
		[]item{file("gone", "1"), file("gonedir/1", "1"), file("opaque/1", "1"), file("plain/1", "1"), char("only/0:0", 0, 0)},
		[]item{file("gone", "2"), file("opaque/2", "2"), file("only/x", "x"), char("nothing-below", 0, 0)},
	)
	wantShape(b.t, root, map[string]string{
		"opaque": "dir", "opaque/0": "file 0", "plain": "dir", "plain/0": "file 0", "plain/1": "file 1",
		"only": "dir", "only/x": "file x",
	})
	for _, p := range []string{".", "opaque"} {
		if attrs, err := xattrsOf(filepath.Join(root, p)); err != nil || len(attrs) != 0 {
			b.t.Errorf("%s of the root has attributes %q, %v", p, attrs, err)
		}
	}
}

func whNames(b *bench) {
	root := b.stack(
		[]item{file(".wh.a", ""), file("d/.wh..wh..opq", "")},
		[]item{file("a", "1"), file("d/b", "1")},
	)
	wantShape(b.t, root, map[string]string{
		".wh.a": "file ", "a": "file 1", "d": "dir", "d/.wh..wh..opq": "file ", "d/b": "file 1",
	})
}

// layerTwice is the diamond of appc's ace.md: A->[B,C], B->[D], C->[D].
func layerTwice(b *bench) {
	bottom := b.layer(file("a", "D"), file("b", "D"), file("x/d", "D"))
	c, a := b.layer(file("a", "C"), file("x", "C")), b.layer(file("a", "A"))
	root := b.mount(b.root(a, bottom, c, bottom))
	wantShape(b.t, root, map[string]string{"a": "file A", "b": "file D", "x": "dir", "x/d": "file D"})
}

func pathWhitelist(b *bench) {
	top := b.layer(file("bin/app", "top"), file("bin/unlisted", "top"), dir("own"))
	lower := b.layer(file("bin/app", "lower"), file("lib/a", "lower").perm(0o4755), file("lib/b", "lower"),
		dir("lib").perm(0o750), dir("etc").perm(0o711), file("etc/x", "lower"), file("usr/share/doc", "lower"), symlink("lib64", "lib"))
	filters, err := unionfs.Filters([]unionfs.Image{
		{Whitelist: []string{"/bin/app", "/lib/a", "/etc", "/lib64", "/not/there"}},
		{Dependents: []int{0}},
	})
	must(b.t, err)
	top.Filter, lower.Filter = filters[0], filters[1]
	root := b.mount(b.root(top, lower))
	wantShape(b.t, root, map[string]string{
		"bin": "dir", "bin/app": "file top", "own": "dir", "lib": "dir", "lib/a": "file lower", "lib64": "link lib", "etc": "dir",
	})
	modes := map[string]uint32{}
	for _, p := range []string{"lib", "lib/a", "etc"} {
		modes[p] = statOf(b.t, filepath.Join(root, p)).Mode & 0o7777
	}
	if diff := cmp.Diff(map[string]uint32{"lib": 0o750, "lib/a": 0o4755, "etc": 0o711}, modes); diff != "" {
		b.t.Errorf("modes (-want +got):\n%s", diff)
	}
}

// wholeWhitelist lists all that the layer holds.
func wholeWhitelist(b *bench) {
	layer := b.layer(file("bin/app", "a"), dir("etc"), symlink("link", "etc"))
	filters, err := unionfs.Filters([]unionfs.Image{{Whitelist: []string{"/bin", "/bin/app", "/etc", "/link"}}, {Dependents: []int{0}}})
	must(b.t, err)
	layer.Filter = filters[1]
	wantShape(b.t, b.mount(b.root(layer)), shape(b.t, layer.Dir))
}

// manyLayers has a file per layer, and one that all have. The layers' paths
// are as long as those of a pod's.
func manyLayers(b *bench, n int) {
	layers := make([]unionfs.Layer, n)
	want := map[string]string{"all": "file 0"}
	for i := range layers {
		text := fmt.Sprint(i)
		path := filepath.Join(b.dir, fmt.Sprintf("sha512-%0128d", i))
		layers[i] = b.layerAt(path, file("all", text), file("n"+text, text))
		want["n"+text] = "file " + text
	}
	root := b.mount(b.root(layers...))
	wantShape(b.t, root, want)
	must(b.t, os.WriteFile(root+"/all", []byte("written"), 0o644))
}

func badRoots(b *bench) {
	good := b.layer(file("a", "a"))
	missing := unionfs.Layer{Dir: filepath.Join(b.dir, "missing")}
	tests := []struct {
		name   string
		change func(*unionfs.Root)
		says   string
	}{
		{"no layers", func(r *unionfs.Root) { r.Layers = nil }, "no layer"},
		{"relative layer", func(r *unionfs.Root) { r.Layers = []unionfs.Layer{{Dir: "layers/x"}} }, `"layers/x"`},
		{"missing layer", func(r *unionfs.Root) { r.Layers = []unionfs.Layer{good, missing} }, missing.Dir},
		{"layer is a file", func(r *unionfs.Root) { r.Layers = []unionfs.Layer{{Dir: good.Dir + "/a"}} }, good.Dir + "/a is not a directory"},
		{"relative target", func(r *unionfs.Root) { r.Target = "t" }, `"t"`},
		{"relative scratch", func(r *unionfs.Root) { r.Scratch = "s" }, `"s"`},
		{"missing target", func(r *unionfs.Root) { r.Target += "-missing" }, "-missing"},
		{"missing scratch", func(r *unionfs.Root) { r.Scratch += "-missing" }, "-missing"},
	}
	for _, tt := range tests {
		r := b.root(good)
		whole := r
		tt.change(&r)
		wantError(b.t, tt.name, b.driver.Mount(b.t.Context(), r), b.driver.Name()+": ", tt.says)
		must(b.t, Unmount(whole))
	}
}
