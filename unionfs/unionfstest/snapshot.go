package unionfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// record has all properties of a file, except the time of the last access.
type record struct {
	Mode     uint32
	UID, GID uint32
	Rdev     uint64
	Nlink    int
	Size     int64
	Mtime    int64
	Ctime    int64
	Data     string
	Xattr    map[string]string
}

// snapshot records everything below dir, dir included, by relative path.
func snapshot(t testing.TB, dir string) map[string]record {
	t.Helper()
	records := map[string]record{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		records[rel], err = recordOf(path)
		return err
	}))
	return records
}

func recordOf(path string) (record, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return record{}, fmt.Errorf("stat %s: %w", path, err)
	}
	r := record{
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Rdev: st.Rdev, Nlink: int(st.Nlink),
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		var data []byte
		data, err = os.ReadFile(path)
		r.Data, r.Size = string(data), st.Size
	case unix.S_IFLNK:
		r.Data, err = os.Readlink(path)
	}
	if err != nil {
		return r, err
	}
	r.Xattr, err = xattrsOf(path)
	return r, err
}

func xattrsOf(path string) (map[string]string, error) {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", path, err)
	}
	attrs := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, fmt.Errorf("get %s of %s: %w", name, path, err)
		}
		attrs[name] = string(value[:n])
	}
	return attrs, nil
}

// shape describes everything below dir in a word or two: "dir", "file TEXT",
// "link TARGET", "fifo", "socket", "char", "block". A name in a listing that cannot be
// looked up does not exist: overlay lists a whiteout in a directory of one layer.
func shape(t testing.TB, dir string) map[string]string {
	t.Helper()
	shapes, err := shapesBelow(dir)
	must(t, err)
	return shapes
}

// shapesBelow is shape without a test. It returns an error if dir itself cannot be read.
func shapesBelow(dir string) (map[string]string, error) {
	shapes := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil || path == dir {
			return err
		}
		r, err := recordOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		shapes[strings.TrimPrefix(path, dir+"/")] = r.shape()
		return err
	})
	return shapes, err
}

func (r record) shape() string {
	switch r.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFREG:
		return "file " + r.Data
	case unix.S_IFLNK:
		return "link " + r.Data
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		return "char"
	default:
		return "block"
	}
}

// wantShape checks the whole content of dir.
func wantShape(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, shape(t, dir)); diff != "" {
		t.Errorf("content of %s (-want +got):\n%s", dir, diff)
	}
}
