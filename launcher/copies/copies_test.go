package copies

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// in opens a folder as the tree of a stranger.
func in(t *testing.T, dir string) Tree {
	t.Helper()
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return In(root, nil)
}

// copyTo copies and returns the warnings.
func copyTo(t *testing.T, from Tree, path string, to Tree, into string, setID bool) (warnings []string, err error) {
	t.Helper()
	source, err := from.Source(path)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	target, err := to.Target(into, source)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	err = Copy(t.Context(), source, target, setID, func(text string) { warnings = append(warnings, text) })
	return warnings, err
}

func mustCopy(t *testing.T, from Tree, path string, to Tree, into string) {
	t.Helper()
	if _, err := copyTo(t, from, path, to, into, true); err != nil {
		t.Fatal(err)
	}
}

// fill makes files: a name that ends in "/" is a folder, a content that begins with "->" a link.
func fill(t *testing.T, dir string, files ...[2]string) {
	t.Helper()
	for _, f := range files {
		path := filepath.Join(dir, f[0])
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch target, link := strings.CutPrefix(f[1], "->"); {
		case err != nil:
		case strings.HasSuffix(f[0], "/"):
			err = os.MkdirAll(path, 0o755)
		case link:
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(f[1]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// exists returns whether there is a file, and does not follow a link.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestCopiesHaveTheNamesOfCp(t *testing.T) {
	for _, test := range []struct{ name, from, to, want string }{
		{"a file into a folder", "file", "old", "old/file"},
		{"a file under a new name", "file", "new", "new"},
		{"a file in place of another", "file", "old/other", "old/other"},
		{"a folder into a folder", "dir", "old", "old/dir/inner"},
		{"a folder under a new name", "dir", "new", "new/inner"},
		{"a folder under a new name with a slash", "dir", "new/", "new/inner"},
		{"contents into a folder", "dir/.", "old", "old/inner"},
		{"contents into a new folder", "dir/.", "new", "new/inner"},
		{"a link that is named is followed", "link", "new", "new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, to := t.TempDir(), t.TempDir()
			fill(t, from, [2]string{"file", "text"}, [2]string{"dir/inner", "text"}, [2]string{"link", "->/file"})
			fill(t, to, [2]string{"old/other", "before"})
			mustCopy(t, in(t, from), test.from, in(t, to), test.to)
			if got := content(t, filepath.Join(to, test.want)); got != "text" {
				t.Errorf("%s has %q", test.want, got)
			}
		})
	}
	from, to := t.TempDir(), t.TempDir()
	fill(t, from, [2]string{"file", "text"}, [2]string{"dir/", ""})
	fill(t, to, [2]string{"other", "before"})
	for _, test := range [][2]string{{"file", "missing/"}, {"file", "missing/new"}, {"dir", "other"}, {"file", "other/new"}, {"missing", "other"}} {
		if _, err := copyTo(t, in(t, from), test[0], in(t, to), test[1], true); err == nil {
			t.Errorf("%s was copied to %s", test[0], test[1])
		}
	}
	if got := content(t, filepath.Join(to, "other")); got != "before" {
		t.Errorf("other has %q", got)
	}
}

func TestCopiesKeepWhatFilesAre(t *testing.T) {
	surroundings.Root(t)
	from, to := t.TempDir(), t.TempDir()
	fill(t, from, [2]string{"dir/file", "text"}, [2]string{"dir/link", "->/nowhere"}, [2]string{"dir/sub/", ""})
	dir := filepath.Join(from, "dir")
	err := errors.Join(os.Link(dir+"/file", dir+"/second"), os.Chown(dir+"/file", 1234, 4321), os.Chmod(dir+"/file", 0o640|os.ModeSetuid),
		os.Chown(dir+"/sub", 7, 8), os.Chmod(dir+"/sub", 0o700|os.ModeSticky), os.Lchown(dir+"/link", 5, 6), unix.Mkfifo(dir+"/fifo", 0o666),
		os.Chtimes(dir+"/file", timeOf(1e9), timeOf(1e9)))
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := copyTo(t, in(t, from), "dir", in(t, to), "/", true)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "dir/fifo") {
		t.Errorf("%v, %q", err, warnings)
	}
	dir = filepath.Join(to, "dir")
	check := func(name string, mode, uid, gid uint32) (s unix.Stat_t) {
		if err := unix.Lstat(filepath.Join(dir, name), &s); err != nil || s.Mode&0o7777 != mode || s.Uid != uid || s.Gid != gid {
			t.Errorf("%s: %v, mode %o, owner %d:%d", name, err, s.Mode, s.Uid, s.Gid)
		}
		return s
	}
	first, second := check("file", 0o4640, 1234, 4321), check("second", 0o4640, 1234, 4321)
	if first.Ino != second.Ino || first.Mtim.Sec != 1e9 {
		t.Errorf("two names of one file have inodes %d and %d, time %d", first.Ino, second.Ino, first.Mtim.Sec)
	}
	check("sub", 0o1700, 7, 8)
	check("link", 0o777, 5, 6)
	if link, _ := os.Readlink(dir + "/link"); link != "/nowhere" {
		t.Errorf("link to %q", link)
	}
	if _, err := copyTo(t, in(t, from), "dir/file", in(t, to), "/", false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(to, "file")); err != nil || info.Mode() != 0o640 {
		t.Errorf("a copy without set-ID bits: %v, %v", info.Mode(), err)
	}
}

// No path leads out of the tree, nor to the kernel's files.
func TestPathsStayInTheTree(t *testing.T) {
	outside := t.TempDir()
	fill(t, outside, [2]string{"secret", "host's"}, [2]string{"tree/secret", "app's"})
	tree := filepath.Join(outside, "tree")
	fill(t, tree, [2]string{"up", "->../secret"}, [2]string{"absolute", "->" + outside + "/secret"}, [2]string{"magic", "->/proc/self/root"},
		[2]string{"folder", "->../../.."}, [2]string{"host", "->" + outside}, [2]string{"self", "->self"})
	for path, want := range map[string]string{
		"../secret": "app's", "/../../secret": "app's", "up": "app's", "folder/secret": "app's",
		"absolute": "", "magic" + outside + "/secret": "", "host/secret": "", "self": "",
	} {
		out := t.TempDir()
		_, err := copyTo(t, in(t, tree), path, Host(), out+"/new", false)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %q was copied", path, content(t, out+"/new"))
		case want != "" && content(t, out+"/new") != want:
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	fill(t, outside, [2]string{"new", "text"})
	for _, path := range []string{"../written", "folder/written", outside + "/written", "host/written"} {
		_, _ = copyTo(t, Host(), outside+"/new", in(t, tree), path, true)
		if exists(outside + "/written") {
			t.Fatalf("%s leads out of the tree", path)
		}
	}
	mustCopy(t, Host(), outside+"/new", in(t, tree), "absolute") // in place of the link
	if got := content(t, outside+"/secret"); got != "host's" || content(t, tree+"/absolute") != "text" {
		t.Errorf("the link was followed: %q", got)
	}
	for _, path := range []string{"/proc/self/status", "/proc/self/fd", "/sys/kernel"} {
		if _, err := copyTo(t, in(t, "/"), path, Host(), t.TempDir(), false); !errors.Is(err, errKernel) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := copyTo(t, Host(), outside+"/new", in(t, "/"), filepath.Dir(path), true); !errors.Is(err, errKernel) {
			t.Errorf("into %s: %v", filepath.Dir(path), err)
		}
	}
}

// A FIFO, a device or a file without an end neither blocks nor is opened.
func TestNothingBlocks(t *testing.T) {
	surroundings.Root(t)
	tree, out := t.TempDir(), t.TempDir()
	if err := errors.Join(unix.Mkfifo(tree+"/fifo", 0o666), unix.Mknod(tree+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "null"} {
		if _, err := copyTo(t, in(t, tree), name, Host(), out, false); err == nil || !strings.Contains(err.Error(), "neither a file nor a folder") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fill(t, out, [2]string{"file", "text"}, [2]string{"null", "text"}, [2]string{"link", "->" + tree + "/null"})
	for name, to := range map[string]string{"file": tree + "/null", "null": tree, "./file": out + "/link"} { // not replaced either
		if _, err := copyTo(t, Host(), filepath.Join(out, name), Host(), to, false); !errors.Is(err, errSpecial) {
			t.Errorf("%s to %s: %v", name, to, err)
		}
	}
	target, err := Host().Target(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	var archive bytes.Buffer // its file has no content
	if err := tar.NewWriter(&archive).WriteHeader(&tar.Header{Name: "holes", Typeflag: tar.TypeReg, Size: 1 << 42}); err != nil {
		t.Fatal(err)
	}
	if err := target.Unpack(&archive, false, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a file of 4 TiB: %v", err)
	}
	if exists(out + "/holes") {
		t.Error("a part of the file is left")
	}
}

// An archive that a stranger has made cannot write beside the target's folder.
func TestArchivesStayInTheirFolder(t *testing.T) {
	outside := t.TempDir()
	fill(t, outside, [2]string{"into/", ""}, [2]string{"secret", "host's"})
	for _, headers := range [][]tar.Header{
		{{Name: "../written", Typeflag: tar.TypeReg}},
		{{Name: "/written", Typeflag: tar.TypeReg}},
		{{Name: "link", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "link/written", Typeflag: tar.TypeReg}},
		{{Name: "link", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "link", Typeflag: tar.TypeDir}, {Name: "link/written", Typeflag: tar.TypeReg}},
		{{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../secret"}, {Name: "written", Typeflag: tar.TypeReg}},
		{{Name: "s", Typeflag: tar.TypeSymlink, Linkname: "../secret"}, {Name: "s", Typeflag: tar.TypeReg, Mode: 0o777, Uid: 7}},
	} {
		var archive bytes.Buffer
		out := tar.NewWriter(&archive)
		for _, header := range headers {
			if err := out.WriteHeader(&header); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		target, err := Host().Target(outside+"/into", nil)
		if err != nil {
			t.Fatal(err)
		}
		err = target.Unpack(&archive, true, func(string) {})
		_ = target.Close()
		info, statErr := os.Stat(outside + "/secret")
		if exists(outside+"/written") || content(t, outside+"/secret") != "host's" || statErr != nil || info.Mode() != 0o644 {
			t.Fatalf("%+v: %v, it has left its folder", headers, err)
		}
	}
	if _, err := Host().Target(outside+"/missing", nil); err == nil {
		t.Error("an archive needs a folder")
	}
}

// A stranger who exchanges folders for links while files are copied to them and from them leads
// the copies nowhere else.
func TestRacesLeadNowhereElse(t *testing.T) {
	outside := t.TempDir()
	fill(t, outside, [2]string{"secret/file", "host's"}, [2]string{"source/dir/file", "copied"}, [2]string{"tree/real/file", "app's"})
	tree := outside + "/tree"
	for _, link := range []string{"dir", "target"} {
		if err := os.Symlink("../secret", tree+"/"+link+".link"); err != nil {
			t.Fatal(err)
		}
		fill(t, tree, [2]string{link + "/file", "app's"})
	}
	end := make(chan struct{})
	var racing sync.WaitGroup
	for _, name := range []string{"dir", "target"} {
		racing.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, tree+"/"+name, unix.AT_FDCWD, tree+"/"+name+".link", unix.RENAME_EXCHANGE)
				}
			}
		})
	}
	for range 500 {
		out := outside + "/out"
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		if _, err := copyTo(t, in(t, tree), "dir/file", Host(), out, false); err == nil && content(t, out) == "host's" {
			t.Fatal("a file of the host was read")
		}
		_, _ = copyTo(t, Host(), outside+"/source/dir/file", in(t, tree), "target", true)
		_, _ = copyTo(t, Host(), outside+"/source/dir/.", in(t, tree), "target", true)
		_, _ = copyTo(t, Host(), outside+"/source/.", in(t, tree), "/", true)
		if got := content(t, outside+"/secret/file"); got != "host's" {
			t.Fatalf("a file of the host was written: %q", got)
		}
	}
	close(end)
	racing.Wait()
}

func timeOf(seconds int64) time.Time { return time.Unix(seconds, 0) }

// GNU tar writes sparse files in a format of its own. What is neither a file nor of a kind that a copy leaves out is an
// error.
func TestAnArchiveOfGNUTarIsUnpacked(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	file, err := os.Create(filepath.Join(in, "holes"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("end"), 1<<20)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	archive, err := exec.Command("tar", "--format=gnu", "--sparse", "-C", in, "-cf", "-", "holes").Output()
	if err != nil || len(archive) > 1<<19 {
		t.Fatalf("%d bytes, %v", len(archive), err)
	}
	target, err := Host().Target(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if err := target.Unpack(bytes.NewReader(archive), false, func(text string) { t.Error(text) }); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(out, "holes")); err != nil || len(data) != 1<<20+3 || string(data[1<<20:]) != "end" {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	var odd bytes.Buffer
	if err := tar.NewWriter(&odd).WriteHeader(&tar.Header{Name: "odd", Typeflag: 'V'}); err != nil {
		t.Fatal(err)
	}
	if err := target.Unpack(&odd, false, nil); err == nil || !strings.Contains(err.Error(), "unknown type 'V'") {
		t.Errorf("%v", err)
	}
}

// In a tree with users of its own, files have the same numbers as outside, and one that it does not have is refused.
func TestOwnersAreThoseOfTheTree(t *testing.T) {
	surroundings.Root(t)
	users, dir, back := &spec.UserNamespace{HostID: 500000, Size: 1000}, t.TempDir(), t.TempDir()
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, host := In(root, users), t.TempDir()
	fill(t, host, [2]string{"d/file", "text"}, [2]string{"d/link", "->file"})
	check := func(dir string, first int) {
		t.Helper()
		for name, owner := range map[string][2]int{"d": {0, 0}, "d/file": {7, 999}, "d/link": {0, 8}} {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil || int(st.Uid) != first+owner[0] || int(st.Gid) != first+owner[1] {
				t.Errorf("%s belongs to %d:%d, %v, want %d", filepath.Join(dir, name), st.Uid, st.Gid, err, owner)
			}
		}
	}
	if err := errors.Join(os.Chown(filepath.Join(host, "d/file"), 7, 999), os.Lchown(filepath.Join(host, "d/link"), 0, 8)); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, Host(), filepath.Join(host, "d"), tree, "/")
	check(dir, 500000)
	mustCopy(t, tree, "/d", Host(), back)
	check(back, 0)
	if err := os.Chown(filepath.Join(host, "d/file"), 1000, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := copyTo(t, Host(), filepath.Join(host, "d/file"), tree, "/", true); err == nil || !strings.Contains(err.Error(), "owner 1000: the app has only 1000 users and groups") {
		t.Errorf("error %v", err)
	}
}
