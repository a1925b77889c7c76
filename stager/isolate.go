package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// isolate makes the supervisor's own view: mounts that vanish with it, and a
// /proc of the pod's PID namespace. What the daemon mounts later still comes in,
// nothing goes out.
func isolate(ns namespaces, hostname string) error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the stager's: %w", err)
	}
	if !ns.hostPID {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc of the pod: %w", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	if hostname != "" && !ns.hostUTS {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", hostname, err)
		}
	}
	return privateFolders()
}

// privateFolders makes the folders of paths.go, and a tmpfs of the
// supervisor's own on privateDir.
func privateFolders() error {
	for dir, mode := range map[string]os.FileMode{runDir: 0o700, privateDir: 0o700, logDir: 0o755} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", privateDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", privateDir, err)
	}
	return nil
}
