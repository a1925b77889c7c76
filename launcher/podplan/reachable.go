package podplan

import (
	"fmt"
	"slices"
	"strconv"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema/types"
)

// reachableWarnings warns, once for each, of the host volumes in which an app may make files as user 0 where others on
// the host can reach them: a program that the app makes set-user-ID 0 would make any of them root.
func (p *Planner) reachableWarnings(m *manifest.Manifest, plan pods.Plan) []string {
	var all []string
	for _, v := range plan.Volumes {
		if v.Source == "" || v.ReadOnly || p.Reachable == nil {
			continue
		}
		for _, app := range m.Apps() {
			if mayBeRoot(app.App.User) && writes(app, v.Name) && p.Reachable(v.Source) {
				who := "user 0"
				if !isRoot(app.App.User) {
					who = fmt.Sprintf("user %q, possibly user 0", app.App.User)
				}
				all = append(all, fmt.Sprintf("pod %q: app %q (%s) can write set-user-ID programs to %q, and other users "+
					"of the host can execute them; set mode 700 on a folder above it, or make the volume readOnly",
					plan.Name, app.Name, who, v.Source))
				break
			}
		}
	}
	return all
}

func isRoot(user string) bool {
	n, err := strconv.ParseUint(user, 10, 32)
	return err == nil && n == 0 || user == "root"
}

// mayBeRoot reports whether a user may be user 0. Who a name or the owner of a file is, the app's image decides when
// the app starts.
func mayBeRoot(user string) bool {
	_, err := strconv.ParseUint(user, 10, 32)
	return err != nil || isRoot(user)
}

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
