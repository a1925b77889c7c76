package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Surroundings are the mounts and the cgroup that a daemon makes for a stager (Kurma Stager
// Specification, "Filesystem Configuration"). They can be encoded as JSON, for the process that
// enters them.
type Surroundings struct {
	Root    string            // the stager's root, made by Image.MakeRoot
	Layers  map[string]string // folders of the host by their image IDs
	Volumes map[string]string // folders of the host by the volumes' names
	Cgroup  string            // below every hierarchy's root, made by MakeCgroup
	Bind    bool              // bind-mount the root on itself
	Overlay bool              // mount an overlay of the root on itself, with Root.upper and Root.work
}

// Enter makes the mounts in the mount namespace of this process, which must be its own, joins the
// cgroup, and changes the root. The caller then executes the stager.
func (s Surroundings) Enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, step := range []func() error{s.joinCgroup, s.mountRoot, s.mountLayers, s.mountVolumes, s.mountCgroups} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := errors.Join(unix.Chroot(s.Root), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter the stager's root: %w", err)
	}
	return nil
}

func (s Surroundings) mountRoot() error {
	type mount struct {
		source, target, kind string
		flags                uintptr
		options              string
	}
	var mounts []mount
	if s.Bind {
		mounts = append(mounts, mount{source: s.Root, flags: unix.MS_BIND})
	}
	if s.Overlay {
		options := fmt.Sprintf("lowerdir=%s,upperdir=%[1]s.upper,workdir=%[1]s.work", s.Root)
		mounts = append(mounts, mount{source: "overlay", kind: "overlay", options: options})
	}
	for _, m := range append(mounts, []mount{
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "sys", "sysfs", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
	}...) {
		if err := unix.Mount(m.source, filepath.Join(s.Root, m.target), m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount /%s: %w", m.target, err)
		}
	}
	return nil
}

func (s Surroundings) mountLayers() error {
	for id, layer := range s.Layers {
		target := filepath.Join(s.Root, names.LayersDir, id)
		if err := unix.Mount(layer, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", target, err)
		}
	}
	return nil
}

func (s Surroundings) mountVolumes() error {
	for name, source := range s.Volumes {
		target := filepath.Join(s.Root, names.VolumesDir, name)
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount volume %s: %w", name, err)
		}
	}
	return nil
}

func (s Surroundings) joinCgroup() error {
	mounts, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if err := os.WriteFile(filepath.Join(mount, s.Cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// mountCgroups mounts the stager's cgroup as the root of each hierarchy: of the version 2 hierarchy
// if it is the only one, else of all hierarchies below a tmpfs.
func (s Surroundings) mountCgroups() error {
	mounts, err := Hierarchies()
	if err != nil {
		return err
	}
	if len(mounts) > 1 {
		if err := unix.Mount("tmpfs", filepath.Join(s.Root, names.CgroupDir), "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs for cgroups: %w", err)
		}
	}
	for _, mount := range mounts {
		target := filepath.Join(s.Root, mount)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join(mount, s.Cgroup), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}
