// Package rootfs prepares an app's assembled root for its container: the files in /etc that the
// executor adds, the folders of empty volumes, and the mount targets of volumes (appc, ace.md,
// Volume Setup). It resolves every path inside the root; no symbolic link of the image or the
// app leads out of it.
package rootfs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// ResolveTargets returns the mounts with their symbolic links in root resolved, as far as the
// targets exist. It refuses a target that leads to a reserved path (spec.Reserved), or to spec.DevFolder: the runtime
// makes no devices of its own only where a mount names that folder. An app may change its
// links between two runs, so call ResolveTargets before each run.
func ResolveTargets(root string, mounts []spec.Mount) ([]spec.Mount, error) {
	resolved := slices.Clone(mounts)
	for i := range resolved {
		m := &resolved[i]
		path, err := securejoin.SecureJoin(root, m.Target)
		if err != nil {
			return nil, fmt.Errorf("mount target %q: %w", m.Target, err)
		}
		m.Target = filepath.Clean("/" + strings.TrimPrefix(path, root))
		r := spec.Reserved(m.Target)
		if m.Target == spec.DevFolder && mounts[i].Target != spec.DevFolder {
			r = spec.DevFolder
		}
		if r != "" {
			return nil, fmt.Errorf("mount target %q leads to %q: nothing can be mounted over %s", mounts[i].Target, m.Target, r)
		}
		for j, other := range resolved[:i] {
			if m.Target == other.Target || spec.Inside(m.Target, other.Target) || spec.Inside(other.Target, m.Target) {
				return nil, fmt.Errorf("mount targets %q and %q lead to %q and %q, which are equal or one inside the other",
					mounts[j].Target, mounts[i].Target, other.Target, m.Target)
			}
		}
	}
	return resolved, nil
}

// PrepareTargets checks what a root has at the mount targets of volumes. It replaces a file by a
// folder where a folder will be mounted, refuses a file that would be mounted at a folder, and logs what a
// volume will hide. It changes nothing outside the root. The mounts are those of ResolveTargets.
func PrepareTargets(root string, mounts []spec.Mount, log *slog.Logger) error {
	for _, m := range mounts {
		hides, err := prepareTarget(root, m)
		if err != nil {
			return fmt.Errorf("prepare mount target %q: %w", m.Target, err)
		}
		if hides != "" {
			log.Warn("a volume hides the image's files", "why", fmt.Sprintf("%s at %s", hides, m.Target))
		}
	}
	return nil
}

// prepareTarget returns what the mount hides, "" for nothing.
func prepareTarget(root string, m spec.Mount) (hides string, err error) {
	folder, err := pathrs.OpenInRoot(root, filepath.Dir(m.Target))
	if errors.Is(err, unix.ENOENT) {
		return "", nil // made later
	}
	if err != nil {
		return "", err
	}
	defer folder.Close()
	parent, name := int(folder.Fd()), filepath.Base(m.Target)
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
	switch isFolder := target.Mode&unix.S_IFMT == unix.S_IFDIR; {
	case isFolder && !source.IsDir():
		return "", fmt.Errorf("the volume %s is a file, which cannot be mounted at the image's folder", m.Source)
	case isFolder && !isEmpty(parent, name):
		return "a folder that is not empty", nil
	case !isFolder && source.IsDir():
		return "a folder takes the place of the file", replaceByFolder(parent, name)
	}
	return "", nil
}

// OpenFolder opens the folder in root that a path leads to, for reading. No symbolic link leads out of root. Where
// there is no folder, the error wraps unix.ENOENT or unix.ENOTDIR. The caller closes the folder.
func OpenFolder(root, path string) (*os.File, error) {
	at, err := pathrs.OpenInRoot(root, path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return pathrs.Reopen(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
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
