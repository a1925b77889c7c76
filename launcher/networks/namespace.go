package networks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/internal/thread"

	"golang.org/x/sys/unix"
)

// Namespace is a pod's network namespace. A file pins it (a bind mount of the namespace), so
// that it outlives this process: after a crash `del` still finds it. A thread of this process
// is in it, so that plugins, which see this machine's processes, find it in /proc.
type Namespace struct {
	thread int
	file   *os.File
	done   chan struct{}
}

// Make makes a network namespace with loopback up, and pins it in a new file.
func Make(pin string) (*Namespace, error) {
	if err := os.MkdirAll(filepath.Dir(pin), 0o700); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	n, err := hold(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := SetUp(); err != nil {
			return err
		}
		return Pin(fmt.Sprintf("/proc/%d/ns/net", unix.Gettid()), pin)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make network namespace: %w", err), Remove(pin))
	}
	return n, nil
}

// Reopen opens the namespace that a file pins. Where the file pins none, because the machine has
// been restarted since, it makes an empty namespace: a plugin's `del` gets a valid one.
func Reopen(pin string) (*Namespace, error) {
	pinned, err := IsPinned(pin)
	if err != nil {
		return nil, err
	}
	if !pinned {
		return Make(pin)
	}
	file, err := os.Open(pin)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer file.Close()
	n, err := hold(func() error { return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET) })
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", pin, err)
	}
	return n, nil
}

// Remove removes the pin, and with it the namespace once no process is in it. It ignores a file that
// does not exist.
func Remove(pin string) error {
	if err := unix.Unmount(pin, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("remove network namespace: %w", &os.PathError{Op: "unmount", Path: pin, Err: err})
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	return nil
}

// IsPinned reports whether the file exists and pins a namespace: not after a restart of the machine. Every other error
// than that the file does not exist says nothing about the namespace.
func IsPinned(pin string) (bool, error) {
	var st unix.Statfs_t
	switch err := unix.Statfs(pin, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, &os.PathError{Op: "statfs", Path: pin, Err: err}
	}
	return st.Type == unix.NSFS_MAGIC, nil
}

// Path is the namespace's path as plugins get it, valid until Close.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/ns/net", n.thread) }

// Enter moves the calling thread into the namespace. The caller has locked the thread.
func (n *Namespace) Enter() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }

// Close ends this process's hold of the namespace.
func (n *Namespace) Close() {
	close(n.done)
	n.file.Close()
}

// hold runs enter on a new thread, which stays in the entered namespace until Close.
func hold(enter func() error) (*Namespace, error) {
	n := &Namespace{done: make(chan struct{})}
	ready := make(chan error)
	thread.Go(func() {
		err := enter()
		if err == nil {
			n.thread = unix.Gettid()
			n.file, err = os.Open(n.Path())
		}
		ready <- err
		if err == nil {
			<-n.done
		}
	})
	return n, <-ready
}

// Pin pins a namespace, by mounting its file in /proc at a file, which it makes if there is none. The file is user 0's,
// whoever the calling thread is.
func Pin(namespace, pin string) error {
	file, err := os.OpenFile(pin, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Chown(0, 0), file.Close()); err != nil {
		return err
	}
	if err := unix.Mount(namespace, pin, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: pin, Err: err}
	}
	return nil
}

// SetUp sets up the calling thread's new network namespace, a pod's: lo is up, and apps of any user may listen on every
// port and send echo requests (ping), as with other container runtimes. The pod may set its sysctls otherwise later. A
// kernel without these sysctls, or a machine whose /proc/sys is read-only, keeps the kernel's defaults.
func SetUp() error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	groups, err := mappedGroups("/proc/thread-self/gid_map")
	if err != nil {
		return err
	}
	for file, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_unprivileged_port_start": "0", "/proc/sys/net/ipv4/ping_group_range": groups,
	} {
		err := os.WriteFile(file, []byte(value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("open ports and ping to all users: %w", err)
		}
	}
	return nil
}

// mappedGroups returns the first and the last of the groups from 0 on that a user namespace has, by its file gid_map
// (user_namespaces(7)): the kernel refuses a range with others.
func mappedGroups(file string) (string, error) {
	const last = 1<<31 - 1 // of ping_group_range
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read groups of the user namespace: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, size uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &size); err == nil && inside == 0 && size > 0 {
			return fmt.Sprintf("0 %d", min(size-1, last)), nil
		}
	}
	return "1 0", nil // none
}

// loopbackUp brings up lo in the calling thread's network namespace.
func loopbackUp() error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(sock) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, request)
}
