package container

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"

	"kurma.io/stager/spec"
)

// isAlone reports whether an app sees no processes but its own: it has its own PID namespace, and no mount shows it
// those of another.
func isAlone(s *spec.Spec) (bool, error) {
	if !s.OwnPIDs {
		return false, nil
	}
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	return !showProcesses(s.Mounts, all), nil
}

// showProcesses reports whether the source of one of the mounts is in a /proc, or has one below that comes with it.
func showProcesses(mounts []spec.Mount, all []*mountinfo.Info) bool {
	for _, m := range mounts {
		around := &mountinfo.Info{}
		for _, other := range all {
			switch {
			case isIn(m.Source, other.Mountpoint) && len(other.Mountpoint) >= len(around.Mountpoint):
				around = other // the later one is on top
			case m.Recursive && other.FSType == "proc" && isIn(other.Mountpoint, m.Source):
				return true
			}
		}
		if around.FSType == "proc" {
			return true
		}
	}
	return false
}

// isIn reports whether a clean path is a folder's, or below it.
func isIn(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
