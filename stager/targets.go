package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/container"
)

// prepareTargets looks at what a root has where volumes are going to be
// mounted (appc, ace.md, Volume Setup): a file in the place of a folder is
// replaced, and what a volume is going to hide is told. Nothing outside the root is
// touched, whatever links are in it.
func prepareTargets(root string, mounts []container.Mount, log *slog.Logger) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	for _, m := range mounts {
		if m.Type != "bind" {
			continue
		}
		hides, err := prepareTarget(dir, m)
		if err != nil {
			return fmt.Errorf("prepare mount target %q: %w", m.Target, err)
		}
		if hides != "" {
			log.Warn("a volume hides what the image has there", "path", m.Target, "hidden", hides)
		}
	}
	return nil
}

// prepareTarget says what the mount hides, "" for nothing.
func prepareTarget(root int, m container.Mount) (hides string, err error) {
	parent, err := openIn(root, filepath.Dir(m.Target))
	if errors.Is(err, unix.ENOENT) {
		return "", nil // made later
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(parent) }()
	name := filepath.Base(m.Target)
	var target unix.Stat_t
	err = unix.Fstatat(parent, name, &target, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	source, err := os.Stat(m.Source)
	if err != nil {
		return "", err
	}
	switch isFile := target.Mode&unix.S_IFMT == unix.S_IFREG; {
	case isFile && source.IsDir():
		return "a file", replaceByFolder(parent, name)
	case target.Mode&unix.S_IFMT == unix.S_IFDIR && !isEmpty(parent, name):
		return "a folder that is not empty", nil
	}
	return "", nil
}

// openIn opens a path below root as if root were the root of all.
func openIn(root int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	return unix.Openat2(root, path, &how)
}

func replaceByFolder(parent int, name string) error {
	if err := unix.Unlinkat(parent, name, 0); err != nil {
		return err
	}
	if err := unix.Mkdirat(parent, name, 0o755); err != nil {
		return err
	}
	return unix.Fchmodat(parent, name, 0o755, 0) // whatever the umask
}

func isEmpty(parent int, name string) bool {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) == 0
}
