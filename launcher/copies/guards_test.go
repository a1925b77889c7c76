package copies

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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

// A file that does not fit is refused before the file in its place is removed and the file system is full.
func TestWhatDoesNotFitIsRefusedFirst(t *testing.T) {
	from, small := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fill(t, small, [2]string{"file", "before"})
	if err := os.WriteFile(from+"/file", bytes.Repeat([]byte("data"), 2<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := copyTo(t, in(t, from), "file", in(t, small), "/", true); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want %v", err, unix.ENOSPC)
	}
	if got := content(t, filepath.Join(small, "file")); got != "before" {
		t.Errorf("the file in its place has %d bytes", len(got))
	}
}
