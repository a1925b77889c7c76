package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// becomeStager makes the surroundings of a stager (Kurma Stager Specification,
// "Filesystem Configuration") in the namespaces this process was started in,
// waits for the word, and executes the stager. It returns only on error.
func becomeStager(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	control := os.NewFile(uintptr(p.Control), "control")
	for _, step := range []func(plan) error{loopbackUp, joinCgroup, mountSurroundings, enterRoot} {
		if err := step(p); err != nil {
			return err
		}
	}
	if err := unix.Close(3); err != nil {
		return fmt.Errorf("close descriptor 3: %w", err)
	}
	one := make([]byte, 1)
	if _, err := control.Write(one); err != nil {
		return fmt.Errorf("say that all is prepared: %w", err)
	}
	if _, err := control.Read(one); err != nil {
		return fmt.Errorf("wait for the word: %w", err)
	}
	unix.CloseOnExec(p.Control)
	err := unix.Exec(names.Exec, []string{names.Exec}, []string{"HOME=/"})
	return fmt.Errorf("execute the stager: %w", err)
}

func loopbackUp(plan) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// joinCgroup makes the stager's cgroup in every hierarchy and moves this
// process into it.
func joinCgroup(p plan) error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, p.Cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := fillCpuset(dir); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join the stager's cgroup: %w", err)
		}
	}
	return nil
}

// fillCpuset gives a cpuset of version 1 its parent's processors and memory;
// nobody may enter one without (cpuset(7)).
func fillCpuset(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0)
		}
		if err != nil {
			return fmt.Errorf("fill %s: %w", file, err)
		}
	}
	return nil
}

func mountSurroundings(p plan) error {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{p.Root, p.Root, "", unix.MS_BIND},
		{"proc", p.Root + "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", p.Root + "/sys", "sysfs", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/dev", p.Root + "/dev", "", unix.MS_BIND | unix.MS_REC},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := mountCgroups(p); err != nil {
		return err
	}
	for _, layer := range p.Layers {
		target := filepath.Join(p.Root, "layers", filepath.Base(layer))
		if err := bind(layer, target); err != nil {
			return err
		}
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", target, err)
		}
	}
	return nil
}

// mountCgroups shows the stager its own cgroup as the root of each hierarchy:
// of the one there is, or of those below a tmpfs.
func mountCgroups(p plan) error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	top := filepath.Join(p.Root, "sys/fs/cgroup")
	if len(mounts) > 1 {
		if err := unix.Mount("tmpfs", top, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", top, err)
		}
	}
	for _, mount := range mounts {
		if err := bind(filepath.Join(mount, p.Cgroup), filepath.Join(p.Root, mount)); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	return nil
}

func enterRoot(p plan) error {
	if err := unix.Chroot(p.Root); err != nil {
		return fmt.Errorf("enter the stager's root: %w", err)
	}
	return os.Chdir("/")
}
