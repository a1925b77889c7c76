package boot

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// filling is an app with one mount, of the volume "v".
type filling struct {
	target  string
	fixed   bool              // the manifest says mode and owner
	files   map[string]string // of the root; a name that ends in "/" is a folder of 1000:1000 and mode 0750
	links   map[string]string
	refused bool
	rest    int // mounts whose targets are still to prepare
}

func (f filling) root(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(f.files)) { // a folder before its files
		path, text := filepath.Join(root, name), f.files[name]
		if strings.HasSuffix(name, "/") {
			must(t, os.Mkdir(path, 0o750))
			must(t, os.Chown(path, 1000, 1000))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for name, target := range f.links {
		must(t, os.Symlink(target, filepath.Join(root, name)))
	}
	return root
}

// contents returns the names of the files in a folder with their texts, and for "." its mode and owner.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Stat(dir, &stat))
	all := map[string]string{".": "another's"}
	switch {
	case stat.Mode == unix.S_IFDIR|0o755 && stat.Uid == 0 && stat.Gid == 0:
		all["."] = "root's"
	case stat.Mode == unix.S_IFDIR|0o750 && stat.Uid == 1000 && stat.Gid == 1000:
		all["."] = "app's"
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		all[e.Name()] = string(text)
	}
	return all
}

// The root of an app is a stranger's: a folder outside, which a link leads to, stays out of the volumes.
func TestVolumesAreFilledFromTheFirstImageThatHasTheirPath(t *testing.T) {
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	own := func(name string) map[string]string { return map[string]string{"data/": "", "data/" + name: name} }
	tests := []struct {
		name string
		apps []filling
		want map[string]string
	}{
		{"folder of the app", []filling{{target: "/data", files: own("a")}}, map[string]string{".": "app's", "a": "a"}},
		{"empty folder of the app", []filling{{target: "/data", files: map[string]string{"data/": ""}}}, map[string]string{".": "app's"}},
		{"no folder", []filling{{target: "/data", rest: 1}}, map[string]string{".": "root's"}},
		{"no parent", []filling{{target: "/no/data", rest: 1}}, map[string]string{".": "root's"}},
		{"a file", []filling{{target: "/data", files: map[string]string{"data": ""}, rest: 1}}, map[string]string{".": "root's"}},
		{"below a file", []filling{{target: "/file/data", files: map[string]string{"file": ""}, rest: 1}}, map[string]string{".": "root's"}},
		{"the manifest says mode and owner", []filling{{target: "/data", fixed: true, files: own("a"), rest: 1}}, map[string]string{".": "root's"}},
		{"the first of two", []filling{{target: "/data", files: own("a")}, {target: "/data", files: own("b"), rest: 1}}, map[string]string{".": "app's", "a": "a"}},
		{"the first that has the path", []filling{{target: "/data", rest: 1}, {target: "/other", files: map[string]string{"other/": "", "other/b": "b"}}}, map[string]string{".": "app's", "b": "b"}},
		{"a link inside the root", []filling{{target: "/link", files: own("a"), links: map[string]string{"link": "/data"}}}, map[string]string{".": "app's", "a": "a"}},
		{"a link out of the root", []filling{{target: "/link", links: map[string]string{"link": outside}, rest: 1}}, map[string]string{".": "root's"}},
		{"a relative link out of the root", []filling{{target: "/link", links: map[string]string{"link": strings.Repeat("../", 20) + outside}, rest: 1}}, map[string]string{".": "root's"}},
		{"a loop", []filling{{target: "/link", links: map[string]string{"link": "link"}, refused: true}}, map[string]string{".": "root's"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			volume := filepath.Join(t.TempDir(), "v")
			must(t, os.Mkdir(volume, 0o755))
			filled := make(map[string]bool)
			for i, app := range test.apps {
				mounts := []spec.Mount{{Source: volume, Target: app.target}}
				rest, err := (&Pod{Plan: new(plan.Pod)}).fillVolumes(t.Context(), app.root(t), mounts, []plan.EmptyVolume{{Path: volume, Mode: 0o755, FromImage: !app.fixed}}, filled)
				if (err != nil) != app.refused || len(rest) != app.rest {
					t.Errorf("app %d: %d mounts are left, and the error is %v", i, len(rest), err)
				}
			}
			if got := contents(t, volume); !maps.Equal(got, test.want) {
				t.Errorf("the volume has %v, want %v", got, test.want)
			}
		})
	}
}

// A volume that an earlier pod has used keeps its files, mode and owner. A root without its path still needs the target.
func TestAVolumeWithFilesIsNotFilled(t *testing.T) {
	volume := t.TempDir()
	must(t, os.WriteFile(filepath.Join(volume, "kept"), nil, 0o644))
	mounts := []spec.Mount{{Source: volume, Target: "/data"}}
	for rest, files := range []map[string]string{{"data/": "", "data/a": "a"}, {}} {
		app := filling{files: files}
		left, err := (&Pod{Plan: new(plan.Pod)}).fillVolumes(t.Context(), app.root(t), mounts, []plan.EmptyVolume{{Path: volume, FromImage: true}}, make(map[string]bool))
		if err != nil || len(left) != rest {
			t.Errorf("%d mounts are left, want %d, and the error is %v", len(left), rest, err)
		}
	}
	if got := contents(t, volume); !maps.Equal(got, map[string]string{".": "root's", "kept": ""}) {
		t.Errorf("the volume has %v", got)
	}
}

// An operator's folder keeps its owner and mode, also if the image has a folder of another owner and mode at its path.
func TestAHostVolumeIsNotFilled(t *testing.T) {
	source := t.TempDir()
	must(t, os.Chown(source, 5, 6))
	must(t, os.Chmod(source, 0o700))
	app := filling{files: map[string]string{"data/": "", "data/a": "a"}}
	rest, err := (&Pod{Plan: new(plan.Pod)}).fillVolumes(t.Context(), app.root(t), []spec.Mount{{Source: source, Target: "/data"}}, nil, make(map[string]bool))
	if entries, _ := os.ReadDir(source); len(entries) > 0 || len(rest) != 1 || err != nil {
		t.Errorf("copied: %v; %d mounts are left, and the error is %v", entries, len(rest), err)
	}
	var stat unix.Stat_t
	must(t, unix.Stat(source, &stat))
	if stat.Mode != unix.S_IFDIR|0o700 || stat.Uid != 5 || stat.Gid != 6 {
		t.Errorf("the folder has mode %o and owner %d:%d", stat.Mode, stat.Uid, stat.Gid)
	}
}

func TestAVolumeThatIsTooSmallStaysEmpty(t *testing.T) {
	volume := t.TempDir()
	must(t, unix.Mount("tmpfs", volume, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, unix.Unmount(volume, 0)) })
	app := filling{files: map[string]string{"data/": "", "data/a": "a", "data/deep/": "", "data/deep/b": strings.Repeat("b", 128<<10)}}
	_, err := (&Pod{Plan: new(plan.Pod)}).fillVolume(t.Context(), app.root(t), spec.Mount{Source: volume, Target: "/data"})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "/deep/b of ") {
		t.Errorf("the error is %v", err)
	}
	if files, err := os.ReadDir(volume); len(files) > 0 || err != nil {
		t.Errorf("the volume has %v, %v", files, err)
	}
}

// A volume that was not filled to the end, because the stager was killed, is filled again, and one whose filling has
// failed is empty.
func TestAVolumeIsFilledWholly(t *testing.T) {
	root, volume := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "data/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(root, "data/one"), filepath.Join(root, "data/deep/two"), filepath.Join(volume, "part")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(volume, fillingAttribute, nil, 0); err != nil {
		t.Fatal(err)
	}
	files := func() string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(volume, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.Join(all, " "), volume+"/", "")
	}
	m := spec.Mount{Source: volume, Target: "/data"}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Pod{Plan: new(plan.Pod)}).fillVolume(cancelled, root, m); !errors.Is(err, context.Canceled) || files() != "" {
		t.Errorf("after an error the volume has %q, %v", files(), err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(volume, "part"), nil, 0o600), unix.Setxattr(volume, fillingAttribute, nil, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Pod{Plan: new(plan.Pod)}).fillVolume(t.Context(), root, m); err != nil || files() != "deep one" {
		t.Errorf("the volume has %q, %v", files(), err)
	}
	if _, err := unix.Getxattr(volume, fillingAttribute, nil); err == nil {
		t.Error("the volume keeps its mark")
	}
	if err := os.WriteFile(filepath.Join(volume, "own"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Pod{Plan: new(plan.Pod)}).fillVolume(t.Context(), root, m); err != nil || files() != "deep one own" {
		t.Errorf("an earlier pod's volume has %q, %v", files(), err)
	}
}
