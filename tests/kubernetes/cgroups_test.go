package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	mount, kind, options string
}

// hierarchies returns the hierarchies that are mounted below /sys/fs/cgroup.
func hierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[1], "/sys/fs/cgroup") || f[2] != "cgroup" && f[2] != "cgroup2" {
			continue
		}
		var options []string
		for _, o := range strings.Split(f[3], ",") {
			switch o {
			case "rw", "ro", "nosuid", "nodev", "noexec", "relatime", "nsdelegate", "memory_recursiveprot", "xattr":
			default:
				options = append(options, o)
			}
		}
		all = append(all, hierarchy{f[1], f[2], strings.Join(options, ",")})
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroups are mounted below /sys/fs/cgroup")
	}
	return all, nil
}

// enterCgroups moves the process into the cgroup, which it makes, in every hierarchy.
func enterCgroups(path string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := h.mount
		for _, name := range strings.Split(path, "/") {
			if err := makeCgroup(h, dir, filepath.Join(dir, name)); err != nil {
				return err
			}
			dir = filepath.Join(dir, name)
		}
		if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

func makeCgroup(h hierarchy, parent, dir string) error {
	if h.kind == "cgroup2" && h.mount == "/sys/fs/cgroup" {
		if err := enableControllers(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if h.options != "cpuset" {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // the kernel leaves them empty
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), value, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func enableControllers(dir string) error {
	controllers, err := os.ReadFile(dir + "/cgroup.controllers")
	if err != nil {
		return err
	}
	var on strings.Builder
	for _, c := range strings.Fields(string(controllers)) {
		fmt.Fprintf(&on, "+%s ", c)
	}
	return os.WriteFile(dir+"/cgroup.subtree_control", []byte(on.String()), 0)
}

// mountCgroups mounts the hierarchies as the process's cgroup namespace has them.
func mountCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err = errors.Join(unix.Unmount("/sys", unix.MNT_DETACH), unix.Mount("sysfs", "/sys", "sysfs", flags, ""))
	if err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if all[0].mount != "/sys/fs/cgroup" {
		if err := unix.Mount("cgroups", "/sys/fs/cgroup", "tmpfs", flags, "mode=755"); err != nil {
			return fmt.Errorf("mount /sys/fs/cgroup: %w", err)
		}
	}
	for _, h := range all {
		err := errors.Join(os.MkdirAll(h.mount, 0o755), unix.Mount("cgroup", h.mount, h.kind, flags, h.options))
		if err != nil {
			return fmt.Errorf("mount %s: %w", h.mount, err)
		}
	}
	if all[0].mount != "/sys/fs/cgroup" {
		return nil
	}
	// A cgroup of version 2 has either processes or controllers for what is below it.
	const agents = "/sys/fs/cgroup/agent"
	return errors.Join(os.Mkdir(agents, 0o755), os.WriteFile(agents+"/cgroup.procs", []byte("0"), 0))
}

// removeCgroups removes a cgroup, whose processes have ended, and all below it.
func removeCgroups(path string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range all {
		errs = append(errs, removeCgroup(filepath.Join(h.mount, path)))
	}
	return errors.Join(errs...)
}

func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeCgroup(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	eventually(10*time.Second, func() bool { // a process that has ended may be in it for a moment
		err = unix.Rmdir(dir)
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}
