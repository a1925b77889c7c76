package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// A folder is copied as the root of all layers has it.
func TestAFolderOfLayersIsCopied(t *testing.T) {
	surroundings.Root(t)
	lower, middle := layerOf(t, "0", "srv/a srv/b srv/gone/x srv/opaque/x etc/x"), layerOf(t, "1", "srv/b srv/gone? srv/opaque/! srv/opaque/y link>/srv")
	upper := layerOf(t, "2", "srv/sub/c file hidden?")
	top := filepath.Join(upper.Rootfs(), "srv")
	if err := os.Chown(top, 70, 71); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(top, 0o2750); err != nil {
		t.Fatal(err)
	}
	layers := []*Image{upper, middle, lower}
	for _, image := range layers {
		image.Manifest = &Manifest{Raw: []byte("{}")}
	}
	for path, want := range map[string]string{
		"/srv": "a@0 b@1 opaque opaque/y@1 sub sub/c@2", "link/": "a@0 b@1 opaque opaque/y@1 sub sub/c@2", "/srv/sub": "c@2",
		"/none": "none", "/file": "none", "/file/x": "none", "/srv/gone": "none", "/hidden": "none",
	} {
		dst := filepath.Join(t.TempDir(), "copy")
		if err := os.Mkdir(dst, 0o700); err != nil {
			t.Fatal(err)
		}
		found, err := CopyFolder(t.Context(), layers, path, dst)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		got := "none"
		if found {
			got = contents(t, dst)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		var stat unix.Stat_t
		if err := unix.Stat(dst, &stat); err != nil {
			t.Fatal(err)
		}
		if path == "/srv" && (stat.Uid != 70 || stat.Gid != 71 || stat.Mode&0o7777 != 0o2750) {
			t.Errorf("%s is of %d:%d, mode %o", path, stat.Uid, stat.Gid, stat.Mode)
		}
	}
	middle.Manifest.Raw = []byte(`{"pathWhitelist":["/srv"]}`)
	if found, err := CopyFolder(t.Context(), layers, "/srv", t.TempDir()); found || err != nil {
		t.Errorf("with a whitelist: %v, %v", found, err)
	}
}

// contents lists what is in a folder, with the contents of its files.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if e.Type().IsRegular() {
			text, _ := os.ReadFile(path)
			name += "@" + string(text)
		}
		all = append(all, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
