package podplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
)

// namespacesIsolator is the pod isolator that says which namespaces are the
// host's: {"net": "host"}.
const namespacesIsolator = "os/linux/namespaces"

// edit puts the options into the document, and gives the apps' own volumes names.
func (d *document) edit(o Options) error {
	if err := d.setVolumes(o.Volumes); err != nil {
		return fmt.Errorf("set volumes of pod: %w", err)
	}
	if err := d.addMounts(o.Mounts); err != nil {
		return fmt.Errorf("mount paths: %w", err)
	}
	if o.HostNetwork {
		if err := d.shareNetwork(); err != nil {
			return fmt.Errorf("set network of pod: %w", err)
		}
	}
	if o.Hostname != "" {
		d.pod.Annotations.Set(names.HostnameAnnotation, o.Hostname)
	}
	d.setLabels(o.Labels)
	return d.nameAppVolumes()
}

// setLabels adds labels to those of the pod, or replaces them.
func (d *document) setLabels(labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	if d.pod.UserLabels == nil {
		d.pod.UserLabels = make(types.UserLabels)
	}
	maps.Copy(d.pod.UserLabels, labels)
}

// setVolumes makes each of the named volumes a path of the host, whatever the
// pod's manifest says. A volume that the pod makes read-only stays read-only.
func (d *document) setVolumes(volumes map[string]string) error {
	for _, text := range slices.Sorted(maps.Keys(volumes)) {
		name, err := types.NewACName(text)
		if err != nil {
			return err
		}
		volume := types.Volume{Name: *name, Kind: "host", Source: volumes[text]}
		i := slices.IndexFunc(d.pod.Volumes, func(v types.Volume) bool { return v.Name == *name })
		if i < 0 {
			d.pod.Volumes = append(d.pod.Volumes, volume)
			continue
		}
		volume.ReadOnly = d.pod.Volumes[i].ReadOnly
		d.pod.Volumes[i] = volume
		d.unknown = slices.DeleteFunc(d.unknown, func(u unknownKey) bool {
			return len(u.place) >= 2 && u.place[0] == "volumes" && u.place[1] == i
		})
	}
	return nil
}

// Mount is a path of the host that every app of a pod has at a path of its own, or a named volume; or without a Source
// and a Volume an empty folder of each app's own.
type Mount struct {
	Source, Target string
	Volume         string // in place of Source
	ReadOnly       bool
	Mode           string // of the folder, octal
}

// addMounts adds a volume for each mount to the pod, or to each app if it is empty, and a mount of it to each app.
func (d *document) addMounts(mounts []Mount) error {
	taken := d.volumeNames()
	for _, m := range mounts {
		text := freeName("launcher-path", func(name string) bool { return slices.Contains(taken, name) })
		taken = append(taken, text)
		name, err := types.NewACName(text)
		if err != nil {
			return err
		}
		var own *types.Volume
		if m.Source == "" {
			if own, err = types.VolumeFromString(text + ",kind=empty,mode=" + m.Mode); err != nil {
				return fmt.Errorf("%s: %w", m.Target, err)
			}
		} else {
			d.pod.Volumes = append(d.pod.Volumes, types.Volume{
				Name: *name, Kind: "host", Source: m.Source,
				ReadOnly: &m.ReadOnly,
			})
		}
		for i := range d.pod.Apps {
			app := &d.pod.Apps[i]
			app.Mounts = append(app.Mounts, schema.Mount{Volume: *name, Path: m.Target, AppVolume: own})
		}
	}
	return nil
}

// addImageVolumes adds an empty volume to the pod of one app for each mount point of its image that no mount fills or
// covers. A volume of the pod stays until the pod is removed, and goes on in the pod that restarts it; one that the
// stager adds does not.
func (d *document) addImageVolumes(image *images.Image, o Options) error {
	section, err := sectionOf(image)
	if err != nil || section.app == nil {
		return err
	}
	d.dropCovered(section, o)
	taken := make(map[string]bool)
	for _, name := range d.volumeNames() {
		taken[name] = true
	}
	for _, point := range section.app.MountPoints {
		isPoint := func(m Mount) bool { return path.Clean(m.Target) == path.Clean("/"+point.Path) }
		if slices.ContainsFunc(o.Mounts, isPoint) || taken[point.Name.String()] {
			continue
		}
		taken[point.Name.String()] = true
		volume, err := types.VolumeFromString(point.Name.String() + ",kind=empty")
		if err != nil {
			return fmt.Errorf("mount point %q: %w", point.Name, err)
		}
		d.pod.Volumes = append(d.pod.Volumes, *volume)
	}
	return nil
}

// dropCovered removes the mount points inside a mount of the options, and around one, from the image's section and the
// pod's only app, because a mount inside another is an error (C-VOL-05). The app has the host's files inside such a
// mount; around it, it has the files of its root. A point with a volume of the options stays.
func (d *document) dropCovered(s section, o Options) {
	covered := func(point types.MountPoint) bool {
		at := path.Clean("/" + point.Path)
		_, filled := o.Volumes[point.Name.String()]
		return !filled && slices.ContainsFunc(o.Mounts, func(m Mount) bool {
			target := path.Clean(m.Target)
			if spec.Inside(target, at) {
				d.around = append(d.around, fmt.Sprintf("the image's volume at %q is not made, because %q is inside: "+
					"the app's other files in %q are deleted with the pod", at, target, at))
				return true
			}
			return spec.Inside(at, target)
		})
	}
	points := slices.DeleteFunc(slices.Clone(s.app.MountPoints), covered)
	if len(points) == len(s.app.MountPoints) {
		return
	}
	s.app.MountPoints = points
	app := &d.pod.Apps[0]
	if app.App == nil {
		app.App, d.pod.AppIsolators[app.Name.String()], d.unknown = s.app, s.isolators, s.unknown
	}
	app.App.MountPoints = s.app.MountPoints
	d.unknown = slices.DeleteFunc(d.unknown, func(u unknownKey) bool {
		return slices.Contains(u.place, any("mountPoints")) // their order has changed
	})
}

// shareNetwork sets in the pod's isolator of namespaces, by which the stager decides, that the network is the
// host's. If there are several isolators it is the last.
func (d *document) shareNetwork() error {
	i := lastNamespaces(d.pod.Isolators)
	if i < 0 {
		i = len(d.pod.Isolators)
		d.pod.Isolators = append(d.pod.Isolators, manifest.Isolator{Name: namespacesIsolator})
	}
	theirs := &d.pod.Isolators[i]
	value := make(strictjson.Object)
	if theirs.Value != nil && !strictjson.IsNull(theirs.Value) {
		if err := json.Unmarshal(theirs.Value, &value); err != nil {
			return fmt.Errorf("isolator %s: %w", namespacesIsolator, err)
		}
	}
	value["net"] = json.RawMessage(`"host"`)
	var err error
	theirs.Value, err = json.Marshal(value)
	return err
}

// hasHostNetwork reports whether the pod's isolator of namespaces has the host's network. If there are several
// isolators it is the last, as for the stager.
func (d *document) hasHostNetwork() bool {
	i := lastNamespaces(d.pod.Isolators)
	if i < 0 {
		return false
	}
	var namespaces map[string]string
	return json.Unmarshal(d.pod.Isolators[i].Value, &namespaces) == nil && namespaces["net"] == "host"
}

func lastNamespaces(isolators []manifest.Isolator) int {
	last := -1
	for i, isolator := range isolators {
		if isolator.Name == namespacesIsolator {
			last = i
		}
	}
	return last
}

// The stager finds a host volume by its name, so each host volume of a pod needs a
// name of its own. The volume of an app's mount overrides the pod's volume (appc,
// pods.md, mounts) and may have the same name. It gets another name then, which
// nothing else in the pod refers to.

// nameAppVolumes gives names to the host volumes of apps. Each name stands for one
// source that is mounted in one way.
func (d *document) nameAppVolumes() error {
	taken := make(map[types.ACName]types.Volume)
	for _, v := range d.pod.Volumes {
		taken[v.Name] = v
	}
	var errs []error
	for _, app := range d.pod.Apps {
		for _, mount := range app.Mounts {
			if volume := mount.AppVolume; volume != nil && volume.Kind == "host" {
				errs = append(errs, nameVolume(volume, taken))
			}
		}
	}
	return errors.Join(errs...)
}

// nameVolume gives a volume the first free name, or that of one that is mounted in the same way.
func nameVolume(volume *types.Volume, taken map[types.ACName]types.Volume) error {
	name := volume.Name
	for n := 2; ; n++ {
		other, ok := taken[name]
		if !ok || sameMount(other, *volume) {
			break
		}
		if err := name.Set(fmt.Sprintf("%s-%d", volume.Name, n)); err != nil {
			return fmt.Errorf("name volumes of apps: %w", err)
		}
	}
	taken[name] = *volume
	volume.Name = name
	return nil
}

// sameMount reports whether one mount in the stager's root can serve as both volumes.
func sameMount(a, b types.Volume) bool {
	return a.Kind == b.Kind && a.Source == b.Source && isSet(a.ReadOnly) == isSet(b.ReadOnly) &&
		(a.Recursive == nil || *a.Recursive) == (b.Recursive == nil || *b.Recursive)
}
