package podplan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema/types"
)

// volumes are the pod's and the apps' own.
func (p *Planner) volumes(pod *manifest.Pod, host HostVolumes) ([]pods.Volume, error) {
	var all []pods.Volume
	for _, v := range pod.Volumes {
		volume, err := p.volume(v)
		if err != nil {
			return nil, err
		}
		volume.Shared = slices.Contains(host.Shared, volume.Name)
		volume.ReadOnlyTop = slices.Contains(host.ReadOnlyTop, volume.Name)
		all = append(all, volume)
	}
	return p.addAppVolumes(pod, all)
}

// volume plans one volume. The source of a host volume is checked now, and opened in
// the same way again when it is mounted.
func (p *Planner) volume(v types.Volume) (pods.Volume, error) {
	volume := pods.Volume{
		Name:        v.Name.String(),
		Source:      v.Source,
		ReadOnly:    isSet(v.ReadOnly),
		SingleMount: v.Recursive != nil && !*v.Recursive,
	}
	var err error
	if v.Kind == "empty" {
		err = planEmpty(&volume, v.Mode, v.UID, v.GID)
	} else {
		err = p.checkSource(v.Source)
	}
	if err != nil {
		return volume, fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return volume, nil
}

// checkMounts refuses a source that cannot be a volume by the paths that a person has typed: the volume's name is
// made up.
func (p *Planner) checkMounts(mounts []Mount) error {
	for _, m := range mounts {
		if m.Source == "" {
			continue // an empty folder
		}
		if err := p.checkSource(m.Source); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

// addAppVolumes adds the host volumes that apps have for themselves. The stager
// makes their empty ones.
func (p *Planner) addAppVolumes(pod *manifest.Pod, all []pods.Volume) ([]pods.Volume, error) {
	have := make(map[string]bool)
	for _, v := range all {
		have[v.Name] = true
	}
	for _, app := range pod.Apps {
		for _, mount := range app.Mounts {
			v := mount.AppVolume
			if v == nil || v.Kind != "host" || have[v.Name.String()] {
				continue
			}
			volume, err := p.volume(*v)
			if err != nil {
				return nil, fmt.Errorf("app %q: %w", app.Name, err)
			}
			all, have[volume.Name] = append(all, volume), true
		}
	}
	return all, nil
}

// checkUsed returns an error if a volume of the options is neither one that the pod has
// nor one that an app mounts: the name is probably misspelt. Own are the pod's.
func checkUsed(m *manifest.Manifest, own []string, options map[string]string) error {
	used := slices.Clone(own)
	for _, app := range m.Apps() {
		for _, point := range app.App.MountPoints {
			used = append(used, point.Name.String())
		}
	}
	for _, app := range m.Pod.Apps {
		for _, mount := range app.Mounts {
			used = append(used, mount.Volume.String())
		}
	}
	slices.Sort(used)
	used = slices.DeleteFunc(slices.Compact(used), func(name string) bool { return name == "" })
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch {
		case slices.Contains(used, name):
		case len(used) == 0:
			return fmt.Errorf("volume %q: no app has a mount point", name)
		default:
			return fmt.Errorf("volume %q: no app has a mount point of that name; known mount points: %s", name,
				strings.Join(used, ", "))
		}
	}
	return nil
}

// planEmpty uses appc's defaults, 0755 and 0:0, where the pod says nothing.
func planEmpty(volume *pods.Volume, mode *string, uid, gid *int) error {
	volume.Source, volume.Mode = "", 0o755
	if mode != nil {
		bits, err := strconv.ParseUint(*mode, 8, 12)
		if err != nil {
			return fmt.Errorf("mode %q is not an octal number of at most 7777", *mode)
		}
		volume.Mode = uint32(bits)
	}
	for _, id := range []struct {
		name     string
		from, to *int
	}{{"uid", uid, &volume.UID}, {"gid", gid, &volume.GID}} {
		if id.from == nil {
			continue
		}
		// chown(2) would cut an ID with more bits down to another ID.
		if *id.from < 0 || *id.from > spec.MaxID {
			return fmt.Errorf("%s %d is not within 0 to %d", id.name, *id.from, int64(spec.MaxID))
		}
		*id.to = *id.from
	}
	return nil
}

func isSet(b *bool) bool { return b != nil && *b }
