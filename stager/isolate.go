package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/rmtree"
	"kurma.io/stager/unionfs"
)

const (
	claimLimit = 2 * time.Second
	claimAgain = 10 * time.Millisecond
)

// claimRoot makes sure that no other stager runs in this root: its cgroups and
// volumes would be taken for what a dead one has left. The claim is a lock on the root
// folder that ends with this process; a file system without locks lets anybody in.
// A supervisor whose waiter has been killed is given a moment to end.
func claimRoot() error {
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("claim root: %w", err)
	}
	for deadline := time.Now().Add(claimLimit); ; time.Sleep(claimAgain) {
		if !errors.Is(unix.Flock(root, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("a stager runs in this root already")
		}
	}
}

// isolate makes the supervisor's own view, in mounts that vanish with it: a
// /proc of the pod's PID namespace, and folders that nobody else sees.
func isolate(ns namespaces, hostname string) error {
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

// prepareScratch empties the folder for upper and work directories and gives
// it. Where the stager's root cannot hold an upper directory, because it is an
// overlay or aufs itself, a tmpfs of the supervisor's takes its place; the driver's
// probe has the last word.
func prepareScratch() (string, error) {
	if err := rmtree.Remove(scratchDir); err != nil {
		return "", fmt.Errorf("empty scratch folder: %w", err)
	}
	if err := os.MkdirAll(scratchDir, 0o711); err != nil {
		return "", fmt.Errorf("make scratch folder: %w", err)
	}
	stacked, err := unionfs.Stacked(scratchDir)
	if err != nil {
		return "", fmt.Errorf("look at scratch folder: %w", err)
	}
	if stacked {
		if err := unix.Mount("tmpfs", scratchDir, "tmpfs", 0, "mode=711"); err != nil {
			return "", fmt.Errorf("mount tmpfs for scratch folder: %w", err)
		}
	}
	return scratchDir, nil
}

// clearEmptyVolumes takes away what a pod before this one in the same root has
// left in its volumes.
func clearEmptyVolumes() error {
	if err := rmtree.Remove(emptyVolumesDir); err != nil {
		return fmt.Errorf("clear empty volumes: %w", err)
	}
	return nil
}

// makeEmptyVolumes makes the folders of empty volumes that are not there yet,
// with mode and owner as asked for whatever the umask.
func makeEmptyVolumes(volumes []emptyVolume) error {
	for _, v := range volumes {
		if err := os.MkdirAll(filepath.Dir(v.Path), 0o711); err != nil {
			return fmt.Errorf("make empty volume: %w", err)
		}
		err := os.Mkdir(v.Path, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = errors.Join(os.Chown(v.Path, v.UID, v.GID), unix.Chmod(v.Path, v.Mode))
		}
		if err != nil {
			return fmt.Errorf("make empty volume: %w", err)
		}
	}
	return nil
}

// writeSysctls sets kernel parameters of the pod's namespaces, by dotted name.
func writeSysctls(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		if err := os.WriteFile(path, []byte(settings[name]), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
	}
	return nil
}

// cleanUp removes what would outlast the supervisor: the pod's cgroup. The
// mounts go with its namespace, the files with the stager's root. It is called
// with no process of the pod left.
func (b *boot) cleanUp() error {
	err := errors.Join(b.logs.close(), b.journal.close())
	if b.metadata != nil {
		err = errors.Join(err, b.metadata.Close())
	}
	for _, s := range b.notify {
		s.close()
	}
	for _, f := range slices.Concat(b.sockets...) {
		_ = f.Close() // nothing is written to it
	}
	if b.cgroup != nil {
		err = errors.Join(err, b.cgroup.Remove())
	}
	if b.runtime != nil {
		err = errors.Join(err, b.runtime.Close())
	}
	return err
}
