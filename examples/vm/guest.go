package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Files of the initial RAM disk, see build.sh.
const (
	modulesDir = "/modules" // kernel modules
	shareDir   = "/share"   // a mount point
)

// guestRole is the program's role as the guest's first process, which the kernel calls /init.
const guestRole = "init"

// beGuest is the first process of the guest. It does not return there: it switches the guest
// off. It reports errors on the console, which is stderr, if it cannot use the line.
func beGuest(context.Context, []string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("%s: not the first process of a guest", names.Program)
	}
	err := makeGuest()
	if err == nil {
		err = serveOutside()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	return fmt.Errorf("guest: power off: %w", err) // and the kernel panics, which ends qemu
}

// makeGuest makes the machine as a pod's supervisor expects it.
func makeGuest() error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"load modules", loadModules},
		{"enter shared root", enterShare},
		{"mount file systems", func() error { return mountAll(guestMounts()) }},
		{"enter shared folder of logs", enterLogs},
		{"bring up network", bringUpNetwork},
		{"raise limit of descriptors", raiseLimits},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// loadModules loads the modules in the order of their names, and those that need a later one after that
// one: which module needs which changes with the kernel's versions.
func loadModules() error {
	entries, err := os.ReadDir(modulesDir) // sorted
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		var waiting []os.DirEntry
		var missing error
		for _, e := range entries {
			err := loadModule(filepath.Join(modulesDir, e.Name()))
			switch {
			case errors.Is(err, unix.ENOENT): // it needs a symbol of another module
				waiting, missing = append(waiting, e), err
			case err != nil:
				return err
			}
		}
		if len(waiting) == len(entries) {
			return missing
		}
		entries = waiting
	}
	return nil
}

// loadModule loads a kernel module, unless the kernel has it.
func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "finit_module", Path: path, Err: err}
	}
	return nil
}

// enterShare makes the shared folder the root. It moves the new root over the initial RAM
// disk, which pivot_root(2) cannot leave, neither here nor in a container.
func enterShare() error {
	if err := unix.Mount(shareTag, shareDir, "virtiofs", 0, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Chdir(shareDir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move: %w", err)
	}
	return errors.Join(unix.Chroot("."), unix.Chdir("/"))
}

// enterLogs has the kernel mount the share's submount of the logs, before mount namespaces are
// copied. Otherwise each namespace would mount its own, without the locks of the others,
// and a reader knows by the writer's lock that a log has not ended.
func enterLogs() error {
	dir, err := os.Open(names.LogDir)
	if err != nil {
		return err
	}
	return dir.Close()
}

// mount is a call of mount(2).
type mount struct {
	fs, target string
	flags      uintptr
	options    string
}

// guestMounts are the guest's file systems, beside its root.
func guestMounts() []mount {
	const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return []mount{
		{"proc", "/proc", noExec, ""},
		{"sysfs", "/sys", noExec, ""},
		{"cgroup2", names.CgroupDir, noExec, "nsdelegate"},
		{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"mqueue", "/dev/mqueue", noExec, ""},
		{"tmpfs", names.RunDir, unix.MS_NOSUID | unix.MS_NODEV, "mode=700"},
	}
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fs, m.target, m.fs, m.flags, m.options); err != nil {
			return fmt.Errorf("%s: %w", m.target, err)
		}
	}
	return nil
}

// bringUpNetwork sets the addresses that qemu's user network expects.
func bringUpNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	device, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 2, 15), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(device, address); err != nil {
		return fmt.Errorf("address of eth0: %w", err)
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: device.Attrs().Index, Gw: net.IPv4(10, 0, 2, 2)})
}

func raiseLimits() error {
	const files = 1 << 20
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
}

// openLine opens the serial port of that name.
func openLine(name string) (*os.File, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && string(bytes.TrimSpace(text)) == name
	})
	if i < 0 {
		return nil, fmt.Errorf("serial port %q is missing, found %s", name, strings.Join(files, " "))
	}
	return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(files[i]))), os.O_RDWR, 0)
}
