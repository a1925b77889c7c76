package hostile

import (
	"os"

	"golang.org/x/sys/unix"
)

// leaser holds leases on the files that the supervisor or a shim opens when a command starts in the app, so that each
// open waits until the lease is broken (fcntl(2), 45 s), and does not give them up.
func leaser() error {
	if err := os.WriteFile("/etc/passwd", []byte("root:x:0:0::/:\n"), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/group", []byte("root:x:0:\n"), 0o644); err != nil {
		return err
	}
	for {
		for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf"} {
			// A write lease needs to be the only descriptor.
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				_ = unix.Close(fd)
			}
		}
		rest()
	}
}
