package sandboxes

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// HostMounts are the mounts of the server's mount namespace at one time.
type HostMounts []*mountinfo.Info

// ReadHostMounts returns what is mounted now.
func ReadHostMounts() (HostMounts, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return all, nil
}

// Below reports whether anything is mounted below a path without symbolic links.
func (m HostMounts) Below(path string) bool {
	for _, one := range m {
		if strings.HasPrefix(one.Mountpoint, strings.TrimSuffix(path, "/")+"/") && one.Mountpoint != path {
			return true
		}
	}
	return false
}

// Shared reports whether a path without symbolic links is on a shared mount (proc_pid_mountinfo(5)).
func (m HostMounts) Shared(path string) bool {
	longest, shared := -1, false
	for _, one := range m {
		top := strings.TrimSuffix(one.Mountpoint, "/")
		if (path == top || strings.HasPrefix(path, top+"/")) && len(top) >= longest { // of several the last one is on top
			longest, shared = len(top), strings.Contains(one.Optional, "shared:")
		}
	}
	return shared
}
