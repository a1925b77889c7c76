package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// mountPlan is the result of an app's mounts and volumes.
type mountPlan struct {
	Mounts  []spec.Mount
	Empty   []EmptyVolume // each is the source of a mount
	Sources []Source      // of the mounts of host volumes
	Notes   []string
}

// EmptyVolume is a folder to make before the apps start, with that mode and owner
// regardless of the umask. Several apps may name the same folder.
type EmptyVolume struct {
	Path     string
	Mode     uint32 // permission, set-ID and sticky bits, as in chmod(2)
	UID, GID int

	// Given is the path of the folder that is the volume, with its mode and owner: the daemon has made it for this pod,
	// says stagerConfig.podVolumes. "" for a new folder: a daemon may mount one of its own for each volume that the pod
	// names, which earlier pods have used, and other pods use now.
	Given string

	// FromImage says that the pod asks for no mode and owner: if an app's image has a folder at the target of the mount,
	// and the volume has no files, the volume becomes a copy of that folder before the apps start. The first such app in
	// the pod's order decides.
	FromImage bool
}

// Source is the path at which the daemon has mounted a host volume, the source of a mount.
type Source struct {
	Volume, Path string
	ReadOnly     bool
	MayBeDevice  bool // the app may use the device that the volume is
}

// request is one mount that an app wants.
type request struct {
	target   string // cleaned
	volume   types.Volume
	own      bool // only this mount uses the volume
	readOnly bool // by the mount point
	why      string
}

// MaxMounts is the most mounts and mount points of an app, and the most volumes of a pod: the stager compares each
// with each, and its daemon mounts each volume.
const MaxMounts = 4096

// CheckMounts returns an error if a pod has more volumes, or an app more mounts and mount points, than MaxMounts.
// Decide refuses such a pod; a daemon refuses it before it makes the volumes.
func CheckMounts(m *manifest.Manifest) error {
	volumes := len(m.Pod.Volumes)
	for _, app := range m.Apps() {
		if n := len(app.Runtime.Mounts) + len(app.App.MountPoints); n > MaxMounts {
			return fmt.Errorf("app %q: %d mounts and mount points are more than %d", app.Name, n, MaxMounts)
		}
		for _, mount := range app.Runtime.Mounts {
			if mount.AppVolume != nil {
				volumes++
			}
		}
	}
	if volumes > MaxMounts {
		return fmt.Errorf("%d volumes are more than %d", volumes, MaxMounts)
	}
	return nil
}

// planMounts decides the mounts of an app (appc, pods.md, mounts and volumes;
// ace.md, Volume Setup). An error names the volume or the targets.
func planMounts(app manifest.App, c Config, privileged bool, volumes []types.Volume) (mountPlan, error) {
	var plan mountPlan
	requests, err := explicit(app, volumes)
	if err != nil {
		return plan, err
	}
	implicit, err := unfilled(app, volumes, requests)
	if err != nil {
		return plan, err
	}
	requests = append(requests, implicit...)
	if err := checkTargets(requests); err != nil {
		return plan, err
	}
	for _, r := range requests {
		if r.why != "" {
			plan.Notes = append(plan.Notes, r.why)
		}
		if err := plan.add(app.Name, r, c, privileged); err != nil {
			return plan, err
		}
	}
	return plan, nil
}

// explicit returns the mounts that the pod manifest lists.
func explicit(app manifest.App, volumes []types.Volume) ([]request, error) {
	var out []request
	for i, mount := range app.Runtime.Mounts {
		if mount.Volume.Empty() {
			return nil, fmt.Errorf("mounts[%d].volume: missing", i)
		}
		target, err := cleanTarget(mount.Path)
		if err != nil {
			return nil, fmt.Errorf("mounts[%d].path: %q: %w", i, mount.Path, err)
		}
		r := request{target: target}
		if mount.AppVolume != nil {
			r.volume, r.own = *mount.AppVolume, true
		} else if n := indexVolume(volumes, mount.Volume); n >= 0 {
			r.volume = volumes[n]
		} else {
			return nil, fmt.Errorf("mounts[%d].volume: %q: the pod has no volume of that name", i, mount.Volume)
		}
		for _, point := range app.App.MountPoints {
			if t, err := cleanTarget(point.Path); err == nil && t == target {
				r.readOnly = r.readOnly || point.ReadOnly
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// checkVolumeNames refuses host volumes of the same name with different sources, which a
// mount's own volume and the pod's can be. The daemon mounts only one volume for a name, so an
// app would see the other's files.
func checkVolumeNames(pod *manifest.Pod) error {
	sources := make(map[types.ACName]string)
	for _, v := range pod.Volumes {
		sources[v.Name] = v.Source
	}
	for _, app := range pod.Apps {
		for i, mount := range app.Mounts {
			v := mount.AppVolume
			if v == nil || v.Kind != "host" {
				continue
			}
			if have, ok := sources[v.Name]; ok && have != v.Source {
				return fmt.Errorf("app %q: mounts[%d].appVolume: another volume with a different source is also named %q",
					app.Name, i, v.Name)
			}
			sources[v.Name] = v.Source
		}
	}
	return nil
}

// unfilled returns mounts for the image's mount points that the pod manifest does not mount:
// the pod's volume of the mount point's name, or an empty volume, which converted images expect.
func unfilled(app manifest.App, volumes []types.Volume, filled []request) ([]request, error) {
	var out []request
	for i, point := range app.App.MountPoints {
		if point.Name.Empty() {
			return nil, fmt.Errorf("mountPoints[%d].name: missing", i)
		}
		target, err := cleanTarget(point.Path)
		if err != nil {
			return nil, fmt.Errorf("mountPoints[%d].path: %q: %w", i, point.Path, err)
		}
		if slices.ContainsFunc(filled, func(r request) bool { return r.target == target }) {
			continue
		}
		r := request{target: target, readOnly: point.ReadOnly}
		if n := indexVolume(volumes, point.Name); n >= 0 {
			r.volume = volumes[n]
		} else {
			r.volume, r.own = types.Volume{Name: point.Name, Kind: "empty"}, true
			r.why = fmt.Sprintf("no volume for mount point %q at %q: the app gets its own new volume", point.Name, target)
		}
		out = append(out, r)
	}
	return out, nil
}

func indexVolume(volumes []types.Volume, name types.ACName) int {
	return slices.IndexFunc(volumes, func(v types.Volume) bool { return v.Name == name })
}

// cleanTarget makes a target absolute, without "..".
func cleanTarget(target string) (string, error) {
	if target == "" {
		return "", errors.New("missing")
	}
	if strings.ContainsRune(target, 0) {
		return "", errors.New("has a NUL character")
	}
	clean := path.Clean("/" + target)
	if r := spec.Reserved(clean); r != "" {
		return "", fmt.Errorf("nothing can be mounted over %s", r)
	}
	return clean, nil
}

// checkTargets refuses two mounts if one would hide the other, or if one would show a part of
// the other.
func checkTargets(requests []request) error {
	for i, a := range requests {
		for _, b := range requests[:i] {
			if a.target == b.target {
				return fmt.Errorf("volumes %q and %q are both mounted at %q", b.volume.Name, a.volume.Name, a.target)
			}
			if spec.Inside(b.target, a.target) {
				a, b = b, a
			}
			if spec.Inside(a.target, b.target) {
				return fmt.Errorf("mount target %q of volume %q lies inside the target %q of volume %q",
					a.target, a.volume.Name, b.target, b.volume.Name)
			}
		}
	}
	return nil
}

func (p *mountPlan) add(app string, r request, c Config, privileged bool) error {
	v := r.volume
	m := spec.Mount{
		Target:    r.target,
		ReadOnly:  r.readOnly || v.ReadOnly != nil && *v.ReadOnly,
		Recursive: true,
	}
	if v.Kind == "empty" {
		if r.target == spec.DevFolder { // it would have no device at all
			return fmt.Errorf("volume %q: only a host volume can be mounted over %s", v.Name, r.target)
		}
		folder, err := emptyFolder(app, len(p.Empty), r, c)
		if err != nil {
			return err
		}
		m.Source = folder.Path
		p.Empty = append(p.Empty, folder)
	} else if err := p.addSource(&m, v, c, privileged); err != nil {
		return err
	}
	p.Mounts = append(p.Mounts, m)
	return nil
}

// addSource makes m the mount of a host volume, with the propagation and the flags that the configuration asks for.
func (p *mountPlan) addSource(m *spec.Mount, v types.Volume, c Config, privileged bool) error {
	name := v.Name.String()
	m.Source = path.Join(names.VolumesDir, name)
	m.Recursive = v.Recursive == nil || *v.Recursive
	m.Propagation = c.VolumePropagation[name]
	if m.Propagation == spec.BothWays && !privileged { // a mount that goes out to the host is a privilege
		return fmt.Errorf("volume %q: stagerConfig.volumePropagation %q is for apps with os/linux/privileged",
			name, m.Propagation)
	}
	if !privileged { // it could take the flags away
		m.NoSuid, m.NoDev = slices.Contains(c.VolumeFlags, FlagNoSuid), slices.Contains(c.VolumeFlags, FlagNoDev)
	}
	p.Sources = append(p.Sources, Source{
		Volume: name, Path: m.Source, ReadOnly: m.ReadOnly,
		MayBeDevice: c.DeviceVolumes == nil || slices.Contains(c.DeviceVolumes, name),
	})
	return nil
}

// saysNothing reports whether an empty volume has appc's default mode and owner. Daemons write out the defaults, so
// those count as nothing said.
func saysNothing(v types.Volume) bool {
	isRoot := func(id *int) bool { return id == nil || *id == 0 }
	return (v.Mode == nil || *v.Mode == "0755") && isRoot(v.UID) && isRoot(v.GID)
}

// emptyFolder returns the folder of the app's nth empty volume. The pod's apps share a volume
// of the pod. A mount's own volume is not shared, even with another of the same name.
func emptyFolder(app string, n int, r request, c Config) (EmptyVolume, error) {
	e := EmptyVolume{
		Path: path.Join(names.EmptyVolumesDir, "pod", r.volume.Name.String()), Mode: 0o755,
		FromImage: saysNothing(r.volume),
	}
	switch name := r.volume.Name.String(); {
	case !r.own && slices.Contains(c.PodVolumes, name):
		e.Given = path.Join(names.VolumesDir, name)
	case r.own:
		e.Path = path.Join(names.EmptyVolumesDir, "app", app, fmt.Sprintf("%s-%d", r.volume.Name, n))
	}
	if r.volume.Mode != nil {
		mode, err := strconv.ParseUint(*r.volume.Mode, 8, 32)
		if err != nil || mode > 0o7777 {
			return e, fmt.Errorf("volume %q: mode %q must be octal, from 0 to 7777", r.volume.Name, *r.volume.Mode)
		}
		e.Mode = uint32(mode)
	}
	for _, id := range []struct {
		name string
		from *int
		to   *int
	}{{"uid", r.volume.UID, &e.UID}, {"gid", r.volume.GID, &e.GID}} {
		if id.from == nil {
			continue
		}
		if *id.from < 0 || *id.from > spec.MaxID {
			return e, fmt.Errorf("volume %q: %s %d must be from 0 to %d", r.volume.Name, id.name, *id.from, int64(spec.MaxID))
		}
		*id.to = *id.from
	}
	return e, nil
}
