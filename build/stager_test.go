package build

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

// stagerImage writes a stager image with further folders.
func stagerImage(t *testing.T, add ...string) ([]byte, error) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := StagerTree(binary, add...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := Write(&out, []byte("{}"), entries); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), nil
}

// folder makes a folder with the named files, and the folders that they are in.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestAddedFilesAreInAStagerImage(t *testing.T) {
	surroundings.Root(t)
	first := folder(t, "usr/bin/qemu", "opt/firmware/bios", "usr/share-more/x")
	second := folder(t, "usr/bin/crun", "usr/share/x")
	for _, err := range []error{
		os.Chmod(filepath.Join(first, "usr"), 0o750),
		os.Chmod(filepath.Join(first, "opt"), 0o700),
		os.Chmod(first, 0o700),
		os.Lchown(filepath.Join(first, "usr/bin/qemu"), 7, 8),
		os.Symlink("crun", filepath.Join(second, "usr/bin/runc")),
		// The link's name is before the folder of its file, byte by byte.
		os.Link(filepath.Join(first, "usr/bin/qemu"), filepath.Join(first, "usr/bin-link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	image, err := stagerImage(t, first, second)
	if err != nil {
		t.Fatal(err)
	}
	found := headers(t, image)
	for name, mode := range map[string]int64{
		"rootfs/": 0o755, "rootfs/opt/": 0o755, "rootfs" + names.Exec: 0o755, "rootfs/opt/firmware/bios": 0o755,
		"rootfs/usr/": 0o750, "rootfs/usr/bin/qemu": 0o755, "rootfs/usr/bin/crun": 0o755, "rootfs/usr/bin/runc": 0o777,
	} {
		if h := found[name]; h == nil || h.Mode != mode || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %+v, want mode %o", name, h, mode)
		}
	}
	if h := found["rootfs/usr/bin-link"]; h == nil || h.Typeflag != tar.TypeLink || h.Linkname != "rootfs/usr/bin/qemu" {
		t.Errorf("the hard link: %+v", h)
	}
	// tar extracts a hard link only after its file.
	dir := t.TempDir()
	cmd := exec.Command("tar", "--extract", "--gzip", "--directory", dir)
	cmd.Stdin = bytes.NewReader(image)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("tar: %v, %s", err, out)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "rootfs/usr/bin-link")); string(data) != "usr/bin/qemu" {
		t.Errorf("the hard link has %q, %v", data, err)
	}
}

func TestTheSameAddedFilesMakeTheSameBytes(t *testing.T) {
	surroundings.Root(t)
	files := []string{"b/x", "b-c", "a", "b/y/z"}
	one, err := stagerImage(t, folder(t, files...))
	if err != nil {
		t.Fatal(err)
	}
	other := folder(t, "b/y/z", "a", "b-c", "b/x")
	for _, name := range files {
		if err := os.Lchown(filepath.Join(other, name), 5, 5); err != nil {
			t.Fatal(err)
		}
	}
	two, err := stagerImage(t, other)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Error("two builds of the same files differ")
	}
}

func TestStagerTreeRefusesAddedFiles(t *testing.T) {
	link := func(name, text string) string {
		root := folder(t)
		if err := os.Symlink(text, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		return root
	}
	socket := folder(t)
	if err := unix.Mknod(filepath.Join(socket, "s"), unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		add  []string
		want string // in the error
	}{
		"the program":           {[]string{folder(t, names.Exec)}, names.Exec},
		"a folder as program":   {[]string{folder(t, names.Exec+"/x")}, names.Exec},
		"a call-in":             {[]string{folder(t, names.CallInDir+"/"+names.Run)}, names.CallInDir + "/run"},
		"a link as folder":      {[]string{link("opt", "/tmp")}, "/opt"},
		"a file twice":          {[]string{folder(t, "a/b"), folder(t, "a/b")}, "/a/b"},
		"a file and a folder":   {[]string{folder(t, "a"), folder(t, "a/b")}, "/a"},
		"a link and a folder":   {[]string{link("lib", "usr/lib"), folder(t, "lib/x")}, "/lib"},
		"a newline":             {[]string{folder(t, "a\nb")}, `"/a\nb"`},
		"an escape sequence":    {[]string{folder(t, "a\x1b[2J")}, `"/a\x1b[2J"`},
		"invalid UTF-8":         {[]string{folder(t, "a\xff")}, `"/a\xff"`},
		"the pod's manifest":    {[]string{folder(t, names.Manifest)}, names.Manifest},
		"a manifest folder":     {[]string{folder(t, names.Manifest+"/x")}, names.Manifest},
		"a layer":               {[]string{folder(t, names.LayersDir+"/x/y")}, names.LayersDir + "/x"},
		"a link for the layers": {[]string{link(names.LayersDir, "/tmp")}, names.LayersDir},
		"a file in /proc":       {[]string{folder(t, "proc/x")}, "/proc/x"},
		"a socket":              {[]string{socket}, "socket"},
		"no folder":             {[]string{filepath.Join(folder(t, "a"), "a")}, "not a folder"},
		"nothing":               {[]string{"/nonexistent"}, "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stagerImage(t, tt.add...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v, want one line with %q", err, tt.want)
			}
		})
	}
}
