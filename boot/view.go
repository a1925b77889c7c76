package boot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// makeView makes the supervisor's own mounts, which vanish with it, and sets the pod's hostname
// and kernel parameters. It removes the last states of an earlier pod in this root: a daemon would take them for this
// pod's, if a later step fails.
func makeView(_ context.Context, p *Pod) error {
	err := soon(func() error { return os.Remove(lastStatus) })
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("remove the last states of an earlier pod: %w", err)
	}
	if err := mountProc(); err != nil {
		return err
	}
	if err := privateFolders(p.Plan.Config.SharedMemory, p.Plan.UserNamespace); err != nil {
		return err
	}
	return p.Init.In(func() error {
		if p.Plan.Hostname != "" {
			if err := unix.Sethostname([]byte(p.Plan.Hostname)); err != nil {
				return fmt.Errorf("set hostname %q: %w", p.Plan.Hostname, err)
			}
		}
		return writeSysctls(p.Plan.Sysctl)
	})
}

// mountProc makes sure that /proc is of the supervisor's PID namespace: the daemon may have started the stager in
// another PID namespace than its own, of which the stager's /proc is then.
func mountProc() error {
	own, err := os.Readlink("/proc/self")
	if err != nil || own != strconv.Itoa(os.Getpid()) {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	return nil
}

// privateFolders makes the stager's folders, and mounts a tmpfs for the supervisor's files, one for the
// runtime's, and one of sharedMemory bytes for what apps write to /dev/shm. An app that fills the last
// takes no space from the others, which the next start of an app needs.
func privateFolders(sharedMemory int64, users *spec.UserNamespace) error {
	for dir, mode := range map[string]os.FileMode{names.RunDir: 0o700, names.LogDir: 0o755} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	const own = "mode=711,size=256m,nr_inodes=256k" // a start takes a few KiB, and some ten files
	for _, m := range []struct{ dir, options string }{
		{names.PrivateDir, own},
		{names.RuntimeDir, own},
		{names.SharedMemoryDir, sharedMemoryOptions(sharedMemory, users)},
	} {
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if err := unix.Mount("tmpfs", m.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, m.options); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", m.dir, err)
		}
	}
	return nil
}

// sharedMemoryOptions are the options of a tmpfs of size bytes (tmpfs(5)). A file without content takes
// about 1 KiB of the kernel's memory, so there may be one for each KiB.
func sharedMemoryOptions(size int64, users *spec.UserNamespace) string {
	const fewest = 1024
	root, _ := users.Outside(0)
	return fmt.Sprintf("mode=1777,uid=%d,gid=%d,size=%d,nr_inodes=%d", root, root, size, max(size/1024, fewest))
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
