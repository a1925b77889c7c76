package sandboxes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/cri/records"

	"golang.org/x/sys/unix"
)

// Compose mounts each tree, with its inner mounts, at a folder or file of that name in dir: a pod's volume is mounted
// with all that is mounted below it. Mount points that are missing are made in the outer mounts. After an error
// Decompose removes what is there.
func Compose(dir string, trees []records.Tree) error {
	for _, t := range trees {
		if err := compose(filepath.Join(dir, t.Name), t); err != nil {
			return fmt.Errorf("mount inside the mount at %s: %w", t.Target, err)
		}
	}
	return nil
}

func compose(top string, t records.Tree) error {
	if err := makePoint(top, t.Source); err != nil {
		return err
	}
	point, err := os.OpenFile(top, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer point.Close()
	outer := t.Bind
	outer.ReadOnly = t.ReadOnly && t.Recursive
	if err := attach(point, outer); err != nil {
		return err
	}
	// A mount on a shared one has become shared itself.
	change := unix.MountAttr{Propagation: flagOf(t.Propagation)}
	if err := unix.MountSetattr(unix.AT_FDCWD, top, unix.AT_RECURSIVE, &change); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	if len(t.Inner) > 0 && outer.ReadOnly { // their mount points may be missing
		writable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, top, 0, &writable); err != nil {
			return os.NewSyscallError("mount_setattr", err)
		}
	}
	for _, inner := range t.Inner {
		if err := attachInner(top, inner); err != nil {
			return fmt.Errorf("%s: %w", inner.Target, err)
		}
	}
	if !t.ReadOnly {
		return nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, top, 0, &attr))
}

// makePoint makes a folder or file on which the source can be mounted.
func makePoint(top, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(top, 0o700)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(top), 0o700), os.WriteFile(top, nil, 0o600))
}

// attachInner mounts at a path below top, on which no symbolic link may be: the outer mount's owner could lead the
// mount elsewhere.
func attachInner(top string, b records.Bind) error {
	info, err := os.Stat(b.Source)
	if err != nil {
		return err
	}
	at, err := os.OpenFile(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer at.Close()
	around := at // the root of the mount that at is on
	names := strings.Split(b.Target, "/")
	for i, name := range names {
		next, err := step(at, name, info.IsDir() || i < len(names)-1)
		if err != nil {
			return err
		}
		defer next.Close()
		if crossed, err := onOtherMounts(at, next); err != nil {
			return err
		} else if crossed {
			around = next
		}
		at = next
	}
	return apart(around, func() error { return attach(at, b) })
}

// step opens a name in a folder, and makes the folder or file if it is missing.
func step(at *os.File, name string, folder bool) (*os.File, error) {
	var err error
	if folder {
		err = unix.Mkdirat(int(at.Fd()), name, 0o755)
	} else {
		err = unix.Mknodat(int(at.Fd()), name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "make", Path: name, Err: err}
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(int(at.Fd()), name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func flagOf(p records.Propagation) uint64 {
	switch p {
	case records.Slave:
		return unix.MS_SLAVE
	case records.Shared:
		return unix.MS_SHARED
	}
	return unix.MS_PRIVATE
}

func attributesOf(options []string) (set uint64) {
	for _, option := range options {
		switch option {
		case "noexec":
			set |= unix.MOUNT_ATTR_NOEXEC
		case "nodev":
			set |= unix.MOUNT_ATTR_NODEV
		case "nosuid":
			set |= unix.MOUNT_ATTR_NOSUID
		}
	}
	return set
}

// attach mounts a path of the host, with all that is mounted below it, at an open file or folder.
func attach(at *os.File, b records.Bind) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	source, err := unix.Openat2(unix.AT_FDCWD, b.Source, &how)
	if err != nil {
		return &os.PathError{Op: "open", Path: b.Source, Err: err}
	}
	defer func() { _ = unix.Close(source) }()
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	tree, err := unix.OpenTree(source, "", flags)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: b.Source, Err: err}
	}
	defer func() { _ = unix.Close(tree) }()
	attr := unix.MountAttr{Attr_set: attributesOf(b.Options), Propagation: flagOf(b.Propagation)}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	if b.ReadOnly {
		flags := uint(unix.AT_EMPTY_PATH)
		if b.Recursive {
			flags |= unix.AT_RECURSIVE
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", flags, &attr); err != nil {
			return os.NewSyscallError("mount_setattr", err)
		}
	}
	const empty = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", int(at.Fd()), "", empty))
}

// Decompose unmounts what Compose has mounted in dir, and removes dir. It may be repeated, also at the same time. It
// never removes what is in a folder: those of the host are not its own.
func Decompose(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if err := errors.Join(unmount(path), os.Remove(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove mounts of container: %w", err)
		}
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
