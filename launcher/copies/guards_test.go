package copies

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// archiveOf returns an archive of files without content.
func archiveOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
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
	return archive.Bytes()
}

// An open that conflicts with a lease (fcntl(2), F_SETLEASE) would wait for the app for up to 45 seconds.
func TestAnAppsLeaseDoesNotHoldTheCopy(t *testing.T) {
	tree := t.TempDir()
	fill(t, tree, [2]string{"leased", "text"})
	file, err := os.OpenFile(tree+"/leased", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	source, err := in(t, tree).Source("leased")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if err := source.Pack(context.Background(), io.Discard, "leased", nil); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%v, want %v", err, unix.EAGAIN)
	}
	if text, err := in(t, tree).ReadFile("leased", 100); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("read: %q, %v, want %v", text, err, unix.EAGAIN)
	}
}

// race calls act while stranger runs again and again, until act returns true.
func race(t *testing.T, stranger func(), act func() bool) {
	t.Helper()
	end := make(chan struct{})
	var racing sync.WaitGroup
	defer racing.Wait()
	defer close(end)
	racing.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				stranger()
			}
		}
	})
	const most = 1 << 20
	for range most {
		if act() {
			return
		}
	}
	t.Errorf("the stranger has come too late %d times", most)
}

// A stranger who puts a link in a new file's place, between the removal of the old file and the open of the new one, makes the copy
// fail: the link is not followed, nor is a file of the stranger's filled.
func TestALinkInANewFilesPlaceIsNotFollowed(t *testing.T) {
	outside := t.TempDir()
	fill(t, outside, [2]string{"tree/", ""}, [2]string{"secret", "host's"})
	tree, place := in(t, outside), outside+"/tree/file"
	archive := archiveOf(t, tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o777, Uid: 7})
	for name, put := range map[string]func(){
		"a symbolic link": func() { _ = os.Symlink("../secret", place) },
		"another name":    func() { _ = os.Link(outside+"/secret", place) },
	} {
		t.Run(name, func(t *testing.T) {
			race(t, put, func() bool {
				target, err := tree.Target("tree", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer target.Close()
				err = target.Unpack(bytes.NewReader(archive), true, nil)
				if info, statErr := os.Stat(outside + "/secret"); statErr != nil || info.Mode() != 0o644 {
					t.Errorf("the host's file: %v, %v", info.Mode(), statErr)
					return true
				}
				return errors.Is(err, unix.EEXIST)
			})
		})
	}
}

// A stranger who exchanges a new folder for a link, before its owner and mode are set, makes the copy fail.
func TestALinkInANewFoldersPlaceIsNotFollowed(t *testing.T) {
	outside := t.TempDir()
	fill(t, outside, [2]string{"tree/", ""}, [2]string{"secret/", ""})
	tree, place, link := in(t, outside), outside+"/tree/folder", outside+"/tree/link"
	archive := archiveOf(t, tar.Header{Name: "folder/", Typeflag: tar.TypeDir, Mode: 0o777, Uid: 7})
	exchange := func() { _ = unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) }
	race(t, exchange, func() bool {
		if err := errors.Join(os.RemoveAll(place), os.RemoveAll(link), os.Symlink("../secret", link)); err != nil {
			return false // the stranger has exchanged them just now
		}
		target, err := tree.Target("tree", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close()
		err = target.Unpack(bytes.NewReader(archive), true, nil)
		if info, statErr := os.Stat(outside + "/secret"); statErr != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the host's folder: %v, %v", info.Mode(), statErr)
			return true
		}
		return errors.Is(err, unix.ENOTDIR)
	})
}

// A file system of the kernel is found wherever it is mounted, also one that few machines use.
func TestAKernelFileSystemIsLeftOut(t *testing.T) {
	surroundings.Root(t)
	kernels := mounted(t, "pstore", "")
	if _, err := copyTo(t, in(t, kernels), "/", Host(), t.TempDir(), false); !errors.Is(err, errKernel) {
		t.Errorf("copied: %v", err)
	}
}

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	return mounted(t, "tmpfs", "size=4m")
}

// mounted returns the folder of a file system until the test's end.
func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A copy that does not fit as a whole is refused before a file in its place is removed and the file system is full. So is
// a file of an archive.
func TestWhatDoesNotFitIsRefusedFirst(t *testing.T) {
	surroundings.Root(t)
	half := strings.Repeat("data", 3<<18)
	for name, files := range map[string][][2]string{
		"one file":  {{"copied/file", half + half}},
		"two files": {{"copied/file", half}, {"copied/other", half}},
		"small files": slices.Collect(func(yield func([2]string) bool) {
			for i := 0; i < 5<<20/1000 && yield([2]string{fmt.Sprint("copied/", i), half[:1000]}); i++ {
			}
		}),
	} {
		from, small := t.TempDir(), smallDisk(t)
		fill(t, small, [2]string{"copied/", ""}, [2]string{"copied/file", "before"})
		fill(t, from, append([][2]string{{"copied/", ""}}, files...)...)
		if _, err := copyTo(t, in(t, from), "copied", in(t, small), "/", true); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v, want %v", name, err, unix.ENOSPC)
		}
		if entries, err := os.ReadDir(filepath.Join(small, "copied")); err != nil || len(entries) != 1 || content(t, filepath.Join(small, "copied/file")) != "before" {
			t.Errorf("%s: the target has %d files, %v", name, len(entries), err)
		}
	}
	small := smallDisk(t)
	fill(t, small, [2]string{"file", "before"})
	target, err := in(t, small).Target("/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	var archive bytes.Buffer // its file's content is not read
	if err := tar.NewWriter(&archive).WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Size: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := target.Unpack(&archive, true, func(string) {}); !errors.Is(err, unix.ENOSPC) || content(t, filepath.Join(small, "file")) != "before" {
		t.Errorf("an archive: %v, want %v", err, unix.ENOSPC)
	}
}

// Holes need no room: a file that is larger than the disk is copied, and is the same.
func TestHolesStayHoles(t *testing.T) {
	surroundings.Root(t)
	from, small := t.TempDir(), smallDisk(t)
	file, err := os.Create(filepath.Join(from, "file"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 64<<20 + 5
	for at, text := range map[int64]string{0: "first", 5<<20 + 1: "middle", 64 << 20: "last!"} {
		if _, err := file.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		t.Fatal(err)
	}
	fill(t, from, [2]string{"zeros", strings.Repeat("\x00", 100_000)})
	for _, name := range []string{"file", "zeros"} {
		mustCopy(t, in(t, from), name, in(t, small), "/")
		if content(t, filepath.Join(from, name)) != content(t, filepath.Join(small, name)) {
			t.Errorf("%s: the copy differs", name)
		}
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(small, name), &stat); err != nil || stat.Blocks*512 > 3*4096 {
			t.Errorf("%s: the copy has %d blocks, %v", name, stat.Blocks, err)
		}
	}
}

// Holes are read as zeros, which takes hours if there are enough of them. A stranger's file needs no room for that.
func TestHolesWithoutAnEndAreRefused(t *testing.T) {
	for name, sizes := range map[string][]int64{"one file": {1 << 42}, "files": {maxHoles/2 + 1<<20, maxHoles/2 + 1<<20}} {
		t.Run(name, func(t *testing.T) {
			from, out := t.TempDir(), t.TempDir()
			for i, size := range sizes {
				file := filepath.Join(from, fmt.Sprint("holes", i))
				if err := errors.Join(os.WriteFile(file, []byte("data"), 0o600), os.Truncate(file, size)); err != nil {
					t.Fatal(err)
				}
			}
			source, err := in(t, from).Source(".")
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			target, err := Host().Target(out, source)
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = Copy(ctx, source, target, true, func(string) {})
			if !errors.Is(err, errHoles) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "holes") {
				t.Errorf("the copy: %v, want %v", err, errHoles)
			}
			if entries, err := os.ReadDir(out); err != nil || len(entries) != 0 {
				t.Errorf("the target has %d files, %v", len(entries), err)
			}
			// A file can grow after it has been measured.
			if len(sizes) > 1 {
				return // the first of them takes its time
			}
			if err := source.Pack(ctx, io.Discard, "", nil); !errors.Is(err, errHoles) {
				t.Errorf("the archive: %v, want %v", err, errHoles)
			}
		})
	}
}
