package build

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree lists the files below a folder of the host as an image's entries, with modes, hard links,
// devices and the extended attributes user.* and security.capability. If keepOwners is set, owners
// are the host's, else 0:0. A socket cannot be in an image and is an error.
func Tree(root string, keepOwners bool) ([]Entry, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("list image root: %w", err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("list image root: %s is not a folder", root))
	}
	t := tree{root: root, keepOwners: keepOwners, seen: make(map[inode]string)}
	if err := filepath.WalkDir(root, t.visit); err != nil {
		return nil, fmt.Errorf("list image root: %w", err)
	}
	return t.entries, nil
}

type inode struct{ dev, ino uint64 }

type tree struct {
	root       string
	keepOwners bool
	seen       map[inode]string // the first name of a file with several
	entries    []Entry
}

func (t *tree) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(t.root, path)
	if err != nil {
		return err
	}
	if name == "." {
		name = ""
	}
	entry, err := t.entry(path, name, info)
	if err != nil {
		return err
	}
	t.entries = append(t.entries, entry)
	return nil
}

func (t *tree) entry(path, name string, info fs.FileInfo) (Entry, error) {
	stat := info.Sys().(*syscall.Stat_t)
	e := Entry{Name: name, Mode: info.Mode(), Source: path}
	if t.keepOwners {
		e.UID, e.GID = int(stat.Uid), int(stat.Gid)
	}
	id := inode{stat.Dev, stat.Ino}
	if first, again := t.seen[id]; again && !info.IsDir() {
		e.Type, e.Link = tar.TypeLink, first
		return e, nil
	}
	if stat.Nlink > 1 {
		t.seen[id] = name
	}
	if err := setType(&e, info, stat); err != nil {
		return Entry{}, err
	}
	var err error
	e.Xattrs, err = xattrs(path)
	return e, err
}

func setType(e *Entry, info fs.FileInfo, stat *syscall.Stat_t) error {
	var err error
	switch info.Mode().Type() {
	case 0:
		e.Type, e.Size = tar.TypeReg, info.Size()
	case fs.ModeDir:
		e.Type = tar.TypeDir
	case fs.ModeSymlink:
		e.Type = tar.TypeSymlink
		e.Link, err = os.Readlink(e.Source)
	case fs.ModeNamedPipe:
		e.Type = tar.TypeFifo
	case fs.ModeDevice:
		e.Type = tar.TypeBlock
	case fs.ModeDevice | fs.ModeCharDevice:
		e.Type = tar.TypeChar
	default:
		return fmt.Errorf("%s: a socket cannot be in an image", e.Source)
	}
	if e.Type == tar.TypeBlock || e.Type == tar.TypeChar {
		e.DevMajor, e.DevMinor = int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev))
	}
	return err
}

// xattrs reads a file's extended attributes user.* and security.capability. A file system without
// attributes is not an error.
func xattrs(path string) (map[string]string, error) {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", path, err)
	}
	found := make(map[string]string)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") && name != "security.capability" {
			continue
		}
		value := make([]byte, 64<<10)
		size, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, fmt.Errorf("read attribute %s of %s: %w", name, path, err)
		}
		found[name] = string(value[:size])
	}
	return found, nil
}
