package podplan

import (
	"fmt"
	"slices"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema/types"
)

// reachableWarnings warns, once for each, of the host volumes in which an app makes files as user 0 where others on
// the host can reach them: a program that the app makes set-user-ID 0 would make any of them root.
func (p *Planner) reachableWarnings(m *manifest.Manifest, plan pods.Plan) []string {
	var all []string
	for _, v := range plan.Volumes {
		if v.Source == "" || v.ReadOnly || p.Reachable == nil {
			continue
		}
		for _, app := range m.Apps() {
			if isRoot(app.App.User) && writes(app, v.Name) && p.Reachable(v.Source) {
				all = append(all, fmt.Sprintf("pod %q: app %q of user 0 writes to %q, where other users of the host can "+
					"execute what it makes set-user-ID; make a folder above it mode 700, or the volume readOnly",
					plan.Name, app.Name, v.Source))
				break
			}
		}
	}
	return all
}

func isRoot(user string) bool { return user == "0" || user == "root" }

// writes reports whether an app mounts a volume, and not read-only.
func writes(app manifest.App, volume string) bool {
	for _, point := range app.App.MountPoints {
		mounts := func(path string) bool { return path == point.Path }
		if point.ReadOnly && (point.Name.String() == volume || slices.ContainsFunc(mountsOf(app, volume), mounts)) {
			return false
		}
	}
	return len(mountsOf(app, volume)) > 0 ||
		slices.ContainsFunc(app.App.MountPoints, func(point types.MountPoint) bool { return point.Name.String() == volume })
}

// mountsOf returns the paths at which the pod mounts a volume in an app.
func mountsOf(app manifest.App, volume string) []string {
	var paths []string
	for _, mount := range app.Runtime.Mounts {
		if mount.Volume.String() == volume {
			paths = append(paths, mount.Path)
		}
	}
	return paths
}
