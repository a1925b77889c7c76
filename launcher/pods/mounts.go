package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// noExec are the mount flags for kernel file systems.
const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// enterNew moves the calling thread into a new mount and network namespace, the pod's, with
// the stager's root as /. The caller has locked the thread and uses it for nothing
// else afterwards. mount_setattr(2) needs Linux 5.12.
func (k *Keeper) enterNew(group *cgroups.Group) error {
	namespaces := unix.CLONE_NEWNS
	alone := !k.Plan.HostNetwork && k.namespace == nil
	if alone {
		namespaces |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(namespaces); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if k.namespace != nil {
		if err := k.namespace.Enter(); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
	}
	if alone {
		if err := networks.SetUp(); err != nil {
			return fmt.Errorf("set up network namespace: %w", err)
		}
	}
	root := filepath.Join(k.Dir, rootDir)
	if err := k.mountAll(root, group); err != nil {
		return err
	}
	return pivot(root)
}

func (k *Keeper) mountAll(root string, group *cgroups.Group) error {
	volumes, err := k.copyShared()
	defer volumes.close()
	if err != nil {
		return err
	}
	// From here on no mount propagates to the host. The host's later mounts still
	// propagate to us, until the mounts that are not the host's are made private.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cut mounts off from the host: %w", err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount stager root: %w", err)
	}
	if err := k.mountProgram(root); err != nil {
		return fmt.Errorf("mount the stager's program: %w", err)
	}
	if err := k.mountLayers(root); err != nil {
		return err
	}
	if err := mountSystem(root, group); err != nil {
		return err
	}
	if err := k.mountLogs(root); err != nil {
		return err
	}
	if err := k.mountJournal(root); err != nil {
		return err
	}
	if err := unix.Mount("", root, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Volumes are mounted last: they stay slaves of the host's mounts, so that the pod
	// sees what the host mounts below a shared one.
	for _, volume := range k.Plan.Volumes {
		if err := k.mountVolume(root, volume, volumes[volume.Name]); err != nil {
			return fmt.Errorf("mount volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

// copies are detached copies of mounts by the names of volumes.
type copies map[string]*os.File

func (c copies) close() {
	for _, tree := range c {
		_ = tree.Close()
	}
}

// copyShared copies the mounts of the volumes that are shared with the host, while the namespace's mounts are peers of
// the host's: so are the copies, whatever becomes of the others.
func (k *Keeper) copyShared() (copies, error) {
	all := make(copies)
	for _, volume := range k.Plan.Volumes {
		if !volume.Shared || volume.Source == "" {
			continue
		}
		source, err := openSource(volume.Source)
		if err == nil {
			all[volume.Name], err = copyTree(int(source.Fd()), volume.Source, volume.options())
			_ = source.Close()
		}
		if err != nil {
			return all, fmt.Errorf("share volume %q: %w", volume.Name, err)
		}
	}
	return all, nil
}

func (v Volume) options() bindOptions {
	return bindOptions{readOnly: v.ReadOnly, readOnlyTop: v.ReadOnlyTop, recursive: !v.SingleMount}
}

func (k *Keeper) mountLayers(root string) error {
	for _, layer := range k.Plan.Layers {
		target := filepath.Join(root, layersName, layer.ID)
		if err := bind(layer.Dir, target, bindOptions{readOnly: true, recursive: true}); err != nil {
			return fmt.Errorf("mount layer %s: %w", layer.ID, err)
		}
	}
	return nil
}

func (k *Keeper) mountJournal(root string) error {
	if k.Plan.Journal == "" {
		return nil
	}
	if err := bind(k.Plan.Journal, filepath.Join(root, journalDir), bindOptions{readOnly: true}); err != nil {
		return fmt.Errorf("mount folder of journald: %w", err)
	}
	return nil
}

// mountVolume mounts a volume. Shared is the mount of a volume that is shared with the host, else nil.
func (k *Keeper) mountVolume(root string, volume Volume, shared *os.File) error {
	target := filepath.Join(root, volumesName, volume.Name)
	if volume.isEmpty() {
		return bind(k.emptyVolume(volume), target, volume.options())
	}
	if volume.Hosts {
		return bind(k.hosts(), target, volume.options())
	}
	if shared != nil {
		return put(shared, volume.Source, target)
	}
	source, err := openSource(volume.Source)
	if err != nil {
		return err
	}
	defer source.Close()
	return attach(int(source.Fd()), volume.Source, target, volume.options())
}

// openSource opens the source of a host volume, a file or folder, with O_PATH, to look at
// it or to mount it. A symbolic link in the path is an error, as appc requires
// (ace.md, Volume Setup): what is mounted is at the path, even if another process
// changes a folder of the path meanwhile. The caller closes the file.
func openSource(path string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := openat2(path, how)
	if errors.Is(err, unix.ENOTDIR) { // O_DIRECTORY, tried first, triggers an automount
		how.Flags &^= unix.O_DIRECTORY
		fd, err = openat2(path, how)
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is or passes through a symbolic link", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// CheckSource reports why a path cannot be the source of a host volume, or nil.
func CheckSource(path string) error {
	source, err := openSource(path)
	if err != nil {
		return err
	}
	return source.Close()
}

func openat2(path string, how unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

func mountSystem(root string, group *cgroups.Group) error {
	if err := bind("/dev", filepath.Join(root, "dev"), bindOptions{recursive: true}); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", noExec, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", noExec|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := mountCgroups(filepath.Join(root, "sys/fs/cgroup"), group); err != nil {
		return fmt.Errorf("mount /sys/fs/cgroup: %w", err)
	}
	return nil
}

// mountCgroups mounts the pod's own group of each hierarchy, writable, at the place of the
// hierarchy on the host: /sys/fs/cgroup for the unified hierarchy alone, otherwise a folder
// in it for each, with the host's links for controllers that are mounted together.
func mountCgroups(target string, group *cgroups.Group) error {
	for _, h := range group.Hierarchies {
		if h.Mount == cgroups.MountRoot {
			return bind(group.Dir(h), target, bindOptions{})
		}
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", noExec, "mode=755"); err != nil {
		return err
	}
	for _, h := range group.Hierarchies {
		dir := filepath.Join(target, filepath.Base(h.Mount))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := bind(group.Dir(h), dir, bindOptions{}); err != nil {
			return err
		}
	}
	return copyLinks(cgroups.MountRoot, target)
}

func copyLinks(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() != os.ModeSymlink {
			continue
		}
		text, err := os.Readlink(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.Symlink(text, filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

type bindOptions struct{ readOnly, readOnlyTop, recursive bool }

// bind mounts source at target. A read-only mount is read-only from the start, with
// everything that is mounted below it, or alone.
func bind(source, target string, options bindOptions) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: source, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return attach(fd, source, target, options)
}

// attach is bind for a source that is open. Name is used in errors only.
func attach(source int, name, target string, options bindOptions) error {
	tree, err := copyTree(source, name, options)
	if err != nil {
		return err
	}
	defer tree.Close()
	return put(tree, name, target)
}

// copyTree returns a detached copy of the mounts at an open source.
func copyTree(source int, name string, options bindOptions) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if options.recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(source, "", flags)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	tree := os.NewFile(uintptr(fd), name)
	if options.readOnly || options.readOnlyTop {
		attr, flags := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}, uint(unix.AT_EMPTY_PATH)
		if options.readOnly {
			flags |= unix.AT_RECURSIVE
		}
		if err := unix.MountSetattr(fd, "", flags, &attr); err != nil {
			_ = tree.Close()
			return nil, fmt.Errorf("make %s read-only: %w", name, err)
		}
	}
	return tree, nil
}

// put attaches detached mounts.
func put(tree *os.File, name, target string) error {
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s: %w", name, err)
	}
	return nil
}

// pivot makes root the namespace's root and unmounts the host's mounts, see
// pivot_root(2) on pivot_root(".", ".").
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter stager root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's mounts: %w", err)
	}
	return unix.Chdir("/")
}
