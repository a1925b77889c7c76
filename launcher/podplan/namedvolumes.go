package podplan

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema"
)

// A named volume is, for the stager, a host volume with the volume's folder in the store as its source. In a pod
// manifest its kind is namedKind, and its source the name; appc's types know no such kind.
const namedKind = "named"

var errNoNamed = errors.New("named volumes are not possible here")

// replaceNamed makes the named volumes of a pod manifest host volumes. It returns whether there are some.
func (p *Planner) replaceNamed(pod map[string]any) (named bool, err error) {
	for place, volume := range volumesIn(pod) {
		if kind, _ := volume[keyOf(volume, "kind")].(string); kind != namedKind {
			continue
		}
		source, _ := volume[keyOf(volume, "source")].(string)
		folder, err := p.namedSource(source)
		if err != nil {
			return false, fmt.Errorf("pod.%s.source: %s: %w", place, strictjson.Quote(source), err)
		}
		delete(volume, keyOf(volume, "kind"))
		delete(volume, keyOf(volume, "source"))
		volume["kind"], volume["source"], named = "host", folder, true
	}
	return named, nil
}

// volumesIn returns the objects of volumes of a pod manifest, by their places.
func volumesIn(pod map[string]any) map[string]map[string]any {
	all := make(map[string]map[string]any)
	for i, element := range listIn(pod, "volumes") {
		if volume, ok := element.(map[string]any); ok {
			all[fmt.Sprintf("volumes[%d]", i)] = volume
		}
	}
	for i, element := range listIn(pod, "apps") {
		app, _ := element.(map[string]any)
		for j, element := range listIn(app, "mounts") {
			mount, _ := element.(map[string]any)
			if volume, ok := mount[keyOf(mount, "appVolume")].(map[string]any); ok {
				all[fmt.Sprintf("apps[%d].mounts[%d].appVolume", i, j)] = volume
			}
		}
	}
	return all
}

// namedSource returns the folder of a named volume's files.
func (p *Planner) namedSource(name string) (string, error) {
	switch {
	case p.Volumes == nil:
		return "", errNoNamed
	case !IsName(name):
		return "", ErrName
	}
	return p.Volumes.Path(name), nil
}

// namedMounts returns the mounts with the folders of the named volumes as their sources.
func (p *Planner) namedMounts(mounts []Mount) ([]Mount, error) {
	mounts = slices.Clone(mounts)
	for i, m := range mounts {
		if m.Volume == "" {
			continue
		}
		folder, err := p.namedSource(m.Volume)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", m.Volume, err)
		}
		mounts[i].Source = folder
	}
	return mounts, nil
}

// checkSource is CheckSource for all but named volumes, which are made at their first use.
func (p *Planner) checkSource(source string) error {
	if p.Volumes != nil {
		if _, named := p.Volumes.NameOf(source); named {
			return nil
		}
	}
	return p.CheckSource(source)
}

// Target is a path at which an app has a volume.
type Target struct {
	Layers []string // IDs of the app's images, the top one first
	Path   string   // clean and absolute
}

// Targets returns where the apps of a planned pod have its volumes, by the volumes' names, in the order of the apps.
func Targets(plan pods.Plan) (map[string][]Target, error) {
	m, err := manifest.Read(bytes.NewReader(plan.Manifest))
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", plan.Name, err)
	}
	all := make(map[string][]Target)
	for _, app := range m.Apps() {
		var filled []string
		add := func(volume, at string) {
			at = path.Clean("/" + at)
			filled = append(filled, at)
			all[volume] = append(all[volume], Target{m.AppImageOrder[app.Name], at})
		}
		for _, mount := range app.Runtime.Mounts {
			add(volumeOf(mount), mount.Path)
		}
		for _, point := range app.App.MountPoints {
			if !slices.Contains(filled, path.Clean("/"+point.Path)) {
				add(point.Name.String(), point.Path)
			}
		}
	}
	return all, nil
}

func volumeOf(mount schema.Mount) string {
	if mount.AppVolume != nil {
		return mount.AppVolume.Name.String()
	}
	return mount.Volume.String()
}
