package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

// fill makes a root with one file of each kind.
func fill(t *testing.T) string {
	t.Helper()
	surroundings.Root(t)
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	steps := []error{
		os.Mkdir(at("d"), 0o755),
		os.WriteFile(at("d/file"), []byte("content"), 0o644),
		os.Chmod(at("d/file"), 0o755|os.ModeSetuid),
		os.Link(at("d/file"), at("hard")),
		os.Symlink("/d/file", at("link")),
		unix.Mkfifo(at("fifo"), 0o600),
		unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		os.Chmod(at("null"), 0o666), // whatever the umask
		unix.Setxattr(at("d"), "user.note", []byte("x"), 0),
		os.Lchown(at("link"), 5, 6),
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func pack(t *testing.T, root string, keepOwners bool) []byte {
	t.Helper()
	entries, err := Tree(root, keepOwners)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, []byte("{}"), entries); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func headers(t *testing.T, image []byte) map[string]*tar.Header {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]*tar.Header)
	archive := tar.NewReader(zip)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h
	}
}

func TestMain(m *testing.M) {
	surroundings.Settle()
	os.Exit(m.Run())
}

func TestWriteKeepsTypesModesAndOwners(t *testing.T) {
	found := headers(t, pack(t, fill(t), true))
	type entry struct {
		Type byte
		Mode int64
		Link string
		UID  int
	}
	got := make(map[string]entry)
	for name, h := range found {
		got[name] = entry{h.Typeflag, h.Mode, h.Linkname, h.Uid}
		if !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: time %v", name, h.ModTime)
		}
	}
	want := map[string]entry{
		"manifest":      {tar.TypeReg, 0o644, "", 0},
		"rootfs/":       {tar.TypeDir, 0o755, "", 0},
		"rootfs/d/":     {tar.TypeDir, 0o755, "", 0},
		"rootfs/d/file": {tar.TypeReg, 0o4755, "", 0},
		"rootfs/hard":   {tar.TypeLink, 0o4755, "rootfs/d/file", 0},
		"rootfs/link":   {tar.TypeSymlink, 0o777, "/d/file", 5},
		"rootfs/fifo":   {tar.TypeFifo, 0o600, "", 0},
		"rootfs/null":   {tar.TypeChar, 0o666, "", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if h := found["rootfs/null"]; h.Devmajor != 1 || h.Devminor != 3 {
		t.Errorf("device %d:%d", h.Devmajor, h.Devminor)
	}
	if note := found["rootfs/d/"].PAXRecords["SCHILY.xattr.user.note"]; note != "x" {
		t.Errorf("attribute %q", note)
	}
}

func TestTheSameFilesMakeTheSameBytes(t *testing.T) {
	a, b := fill(t), fill(t)
	if err := os.Chtimes(filepath.Join(b, "d/file"), time.Unix(5, 0), time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(filepath.Join(b, "d"), 9, 9); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pack(t, a, false), pack(t, b, false)) {
		t.Error("two builds of the same files differ")
	}
}

func TestGNUTarReadsIt(t *testing.T) {
	cmd := exec.Command("tar", "--list", "--gzip", "--file", "-")
	cmd.Stdin = bytes.NewReader(pack(t, fill(t), false))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "manifest\nrootfs/\nrootfs/d/\nrootfs/d/file\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTreeRefusesSockets(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mknod(filepath.Join(root, "s"), unix.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Tree(root, false); err == nil {
		t.Error("a socket is taken")
	}
	file, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Dir(file), link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Tree(file, false); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("the root is a file: %v", err)
	}
	if all, err := Tree(link, false); err != nil || len(all) != 2 || all[1].Name != "file" {
		t.Errorf("the root is a link to a folder: %v, %v", all, err)
	}
	if _, err := Tree(filepath.Join(root, "none"), false); err == nil {
		t.Error("a folder that is not there is taken")
	}
}

func TestStagerTreeLinksTheCallIns(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := StagerTree(binary)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, []byte("{}"), entries); err != nil {
		t.Fatal(err)
	}
	found := headers(t, out.Bytes())
	for _, name := range names.CallIns() {
		if h := found["rootfs"+names.CallInDir+"/"+name]; h == nil || h.Linkname != names.Exec {
			t.Errorf("%s: %+v", name, h)
		}
	}
	for _, name := range []string{"rootfs/", "rootfs/opt/", "rootfs" + names.CallInDir + "/", "rootfs" + names.Exec} {
		if h := found[name]; h == nil || h.Mode != 0o755 || h.Uid != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
