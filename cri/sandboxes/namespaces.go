package sandboxes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/internal/userns"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// kind is a kind of namespace that a sandbox can have of its own.
type kind struct {
	name string // of the file that pins it in the sandbox's folder, as in /proc/PID/ns
	flag int
}

func kinds() []kind {
	return []kind{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, users()}
}

// users is the kind of user namespaces. The other namespaces of a sandbox are made in its own.
func users() kind { return kind{"user", unix.CLONE_NEWUSER} }

// own returns the kinds that the sandbox does not share with the host, but for users, which its containers' apps alone
// are in. A hostname belongs to a network.
func own(r records.Sandbox) []kind {
	var all []kind
	for _, n := range kinds() {
		shared := r.HostNetwork
		if n.flag == unix.CLONE_NEWIPC {
			shared = r.HostIPC
		}
		if n != users() && !shared {
			all = append(all, n)
		}
	}
	return all
}

// Pin is a file that pins a namespace.
type Pin struct {
	Type string // as the OCI runtime specification names it
	Path string
}

// Pins returns the pins of the namespaces that a sandbox with that folder does not share with the host, but for that of
// PIDs, which is there only once a container asks for it.
func Pins(dir string, r records.Sandbox) []Pin {
	var all []Pin
	for _, n := range own(r) {
		name := n.name
		if n.flag == unix.CLONE_NEWNET {
			name = "network"
		}
		all = append(all, Pin{name, filepath.Join(dir, n.name)})
	}
	return all
}

// pinned returns the kinds that the sandbox has pinned. One that shares all of them with the host pins the host's UTS
// namespace: the mount shows that the sandbox has not been stopped, and that the machine has not been started again.
func pinned(r records.Sandbox) []kind {
	all := own(r)
	if r.Users != nil {
		return append(all, users())
	}
	if len(all) == 0 {
		all = []kind{{"uts", unix.CLONE_NEWUTS}}
	}
	return all
}

// pinNamespaces makes the sandbox's namespaces, and pins each by a bind mount in its folder.
func pinNamespaces(dir string, r records.Sandbox) error {
	flags := 0
	for _, n := range own(r) {
		flags |= n.flag
	}
	if r.Users != nil {
		keep := func(made string) error { return pinAll(made, dir, r) }
		if err := userns.New(r.Users.HostID, r.Users.Size, uintptr(flags), keep); err != nil {
			return err
		}
		return thread.New(func() error {
			if err := Enter(dir, r); err != nil {
				return err
			}
			return setUp(r)
		})
	}
	return thread.New(func() error {
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("make namespaces: %w", err)
		}
		if err := setUp(r); err != nil {
			return err
		}
		return pinAll(fmt.Sprintf("/proc/%d/ns", unix.Gettid()), dir, r)
	})
}

// setUp sets loopback, hostname and sysctls in the sandbox's own namespaces. The calling thread is in them.
func setUp(r records.Sandbox) error {
	if !r.HostNetwork {
		err := errors.Join(networks.SetUp(), unix.Sethostname([]byte(r.Hostname)))
		if err != nil {
			return fmt.Errorf("set up namespaces: %w", err)
		}
	}
	return writeSysctls(r.Sysctls)
}

func writeSysctls(all map[string]string) error {
	for key, value := range all {
		if err := os.WriteFile(sysctlFile(key), []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, err)
		}
	}
	return nil
}

// pinAll pins the namespaces of which made has the files.
func pinAll(made, dir string, r records.Sandbox) error {
	for _, n := range pinned(r) {
		if err := networks.Pin(filepath.Join(made, n.name), filepath.Join(dir, n.name)); err != nil {
			return fmt.Errorf("pin namespace: %w", err)
		}
	}
	return nil
}

// sysctlFile is the file of a sysctl. The name has dots or slashes.
func sysctlFile(key string) string {
	return "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
}

// unmount unmounts what is mounted at a path, if anything is, with all that is mounted in it. These mounts are private
// before: the unmount of one in a shared mount would propagate to the host's mounts, whose copies they are.
func unmount(path string) error {
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &private)
	if err == nil {
		err = unix.Unmount(path, unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return &os.PathError{Op: "unmount", Path: path, Err: err}
	}
	return nil
}

// CheckSysctls returns an error that names a sysctl of the record which is not one of the sandbox's own namespaces.
func CheckSysctls(r records.Sandbox) error {
	for key := range r.Sysctls {
		name := strings.ReplaceAll(key, "/", ".")
		ipc := strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
			name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")
		mine := strings.HasPrefix(name, "net.") && !r.HostNetwork || ipc && !r.HostIPC
		if !mine || strings.Contains(name, "..") {
			return fmt.Errorf("sysctl %q is not one of the pod's own namespaces", key)
		}
	}
	return nil
}
