// Package copies copies files and folders between the host and a tree of files that a stranger owns and changes
// meanwhile, such as the root of an app, as tar archives.
//
// What the stranger does must neither lead out of the tree, nor make the caller wait or open a device:
//
//   - A path that a person names is resolved inside the tree, as if the caller had its root (RESOLVE_IN_ROOT in
//     openat2(2)). Below it no symbolic link is followed.
//   - A file is opened with O_PATH first, and read only if it is a regular file, to the size that it has then.
//   - A file is always made anew, by a descriptor of its folder, so that a link in its place is replaced and not
//     followed. Its owner and mode are set by the descriptor of the new file. A device, FIFO or socket is not replaced.
//   - Files of the kernel's own file systems, such as /proc, are left out.
//
// Devices, FIFOs and sockets are left out, and extended attributes are. Zeros become holes.
package copies

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/internal/kernelfs"
	"kurma.io/stager/spec"

	"golang.org/x/sys/unix"
)

// Tree is where paths are resolved.
type Tree struct {
	root  *os.File            // nil for the host
	users *spec.UserNamespace // to whose users the files belong, nil for the caller's
}

// Host is the caller's own tree.
func Host() Tree { return Tree{} }

// In is the tree below a root, an open folder, whose files belong to the users of a namespace, nil for the caller's.
// The root is the caller's to close.
func In(root *os.File, users *spec.UserNamespace) Tree { return Tree{root, users} }

// open opens what a path leads to, with O_PATH. The caller closes it.
func (t Tree) open(path string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC
	if t.root == nil {
		return os.OpenFile(path, flags, 0)
	}
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), path, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) { // a name has been changed meanwhile
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// Source is a file or folder to copy.
type Source struct {
	file     *os.File // O_PATH
	base     string   // "" for the contents of a folder
	isFolder bool
	users    *spec.UserNamespace
}

// Source opens what the path leads to. A path of a folder with "/." at its end means the contents. The caller closes
// it.
func (t Tree) Source(path string) (*Source, error) {
	file, err := t.open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.IsDir() && !info.Mode().IsRegular():
		err = pathError("copy", path, errSpecial)
	default:
		if err = notOfTheKernel(file); err != nil {
			err = &os.PathError{Op: "copy", Path: path, Err: err}
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &Source{file: file, base: filepath.Base(path), isFolder: info.IsDir(), users: t.users}
	if strings.HasSuffix(path, "/.") || s.base == "." || s.base == ".." || s.base == "/" {
		s.base = ""
	}
	return s, nil
}

// ReadFile returns the contents of a file of at most limit bytes.
func (t Tree) ReadFile(path string, limit int64) ([]byte, error) {
	source, err := t.Source(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	file, err := reopen(source.file, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, pathError("read", path, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	if err != nil {
		return nil, pathError("read", path, err)
	}
	return text, nil
}

// Close closes the source.
func (s *Source) Close() error { return s.file.Close() }

// Target is a folder, and the name that a copy has in it; "" for contents that are put into the folder itself.
type Target struct {
	folder  *os.File // O_PATH
	name    string
	path    string // as the caller names it, for errors
	users   *spec.UserNamespace
	checked bool // by checkRoom
	fresh   bool // see NewFolder
}

// NewFolder opens a folder of the host that the caller has made: an archive that Unpack unpacks there may also have the
// owner and mode of the folder itself. The caller closes it.
func NewFolder(path string) (*Target, error) {
	folder, err := Host().open(path)
	if err != nil {
		return nil, err
	}
	return &Target{folder: folder, path: path, fresh: true}, nil
}

// Name is the name that a copy has in the target's folder, as Pack wants it.
func (t *Target) Name() string { return t.name }

// Close closes the target.
func (t *Target) Close() error { return t.folder.Close() }

// Target opens the place of a copy of the source, by cp(1)'s rules: below a folder that exists, or with the path's
// name if there is nothing, or in place of a file. Without a source, of an archive, the path must be a folder. The
// caller closes it.
func (t Tree) Target(path string, source *Source) (*Target, error) {
	at, err := t.open(path)
	if err == nil {
		info, err := at.Stat()
		if err == nil && info.IsDir() {
			return t.target(path, at, source)
		}
		if err == nil && !info.Mode().IsRegular() {
			err = pathError("copy to", path, errSpecial)
		}
		if err := errors.Join(err, at.Close()); err != nil {
			return nil, err
		}
	}
	missing := errors.Is(err, unix.ENOENT)
	if err != nil && !missing {
		return nil, err
	}
	folder, name := filepath.Split(path)
	switch {
	case source == nil || missing && name == "" && !source.isFolder || name == "." || name == "..":
		return nil, &os.PathError{Op: "copy into", Path: path, Err: unix.ENOTDIR}
	case !missing && (source.isFolder || name == ""):
		return nil, &os.PathError{Op: "copy a folder to", Path: path, Err: unix.ENOTDIR}
	case name == "": // a new folder, by a slash at the end of its path
		folder, name = filepath.Split(strings.TrimRight(path, "/"))
	}
	if folder == "" {
		folder = "."
	}
	if at, err = t.open(folder); err != nil {
		return nil, err
	}
	return &Target{folder: at, name: name, path: path, users: t.users}, nil
}

// target is the place in a folder that exists.
func (t Tree) target(path string, at *os.File, source *Source) (*Target, error) {
	if err := notOfTheKernel(at); err != nil {
		return nil, errors.Join(&os.PathError{Op: "copy into", Path: path, Err: err}, at.Close())
	}
	made := &Target{folder: at, path: path, users: t.users}
	if source != nil {
		made.name = source.base
	}
	return made, nil
}

// notOfTheKernel refuses files that the kernel makes.
func notOfTheKernel(file *os.File) error {
	if kernels, err := kernelfs.Has(file); err != nil || !kernels {
		return err
	}
	return errKernel
}

var (
	errKernel  = errors.New("part of a kernel file system, such as /proc")
	errSpecial = errors.New("neither a file nor a folder")
)

// reopen opens a file for reading that is open with O_PATH: the same file, whatever its name leads to now.
func reopen(at *os.File, flags int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", at.Fd()), flags|unix.O_CLOEXEC, 0)
}
