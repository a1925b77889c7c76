package podplan

import (
	"fmt"

	"kurma.io/stager/internal/strictjson"

	"github.com/appc/spec/schema/types"
)

// The stager finds a host volume by its name, so each host volume of a pod needs a
// name of its own. The volume of an app's mount overrides the pod's volume (appc,
// pods.md, mounts) and may have the same name. It gets another name then, which
// nothing else in the pod refers to.

// nameAppVolumes gives names to the host volumes of apps. Each name stands for one
// source that is mounted in one way.
func nameAppVolumes(pod strictjson.Object) error {
	var volumes []types.Volume
	if err := pod.Get("volumes", &volumes); err != nil {
		return err
	}
	taken := make(map[string]types.Volume)
	for _, v := range volumes {
		taken[v.Name.String()] = v
	}
	var apps []strictjson.Object
	if err := pod.Get("apps", &apps); err != nil {
		return err
	}
	for i, app := range apps {
		if err := nameVolumesOf(app, taken); err != nil {
			return fmt.Errorf("apps[%d]: %w", i, err)
		}
	}
	return pod.Set("apps", apps)
}

func nameVolumesOf(app strictjson.Object, taken map[string]types.Volume) error {
	var mounts []strictjson.Object
	if err := app.Get("mounts", &mounts); err != nil {
		return err
	}
	if mounts == nil {
		return nil
	}
	for i, mount := range mounts {
		if err := nameVolume(mount, taken); err != nil {
			return fmt.Errorf("mounts[%d]: %w", i, err)
		}
	}
	return app.Set("mounts", mounts)
}

func nameVolume(mount strictjson.Object, taken map[string]types.Volume) error {
	var text strictjson.Object
	var volume *types.Volume
	if err := mount.Get("appVolume", &volume); err != nil || volume == nil || volume.Kind != "host" {
		return err
	}
	if err := mount.Get("appVolume", &text); err != nil {
		return err
	}
	name := volume.Name.String()
	for n := 2; ; n++ {
		other, ok := taken[name]
		if !ok || sameMount(other, *volume) {
			break
		}
		name = fmt.Sprintf("%s-%d", volume.Name, n)
	}
	taken[name] = *volume
	if err := text.Set("name", name); err != nil {
		return err
	}
	return mount.Set("appVolume", text)
}

// sameMount reports whether one mount in the stager's root can serve as both volumes.
func sameMount(a, b types.Volume) bool {
	return a.Kind == b.Kind && a.Source == b.Source && isSet(a.ReadOnly) == isSet(b.ReadOnly) &&
		(a.Recursive == nil || *a.Recursive) == (b.Recursive == nil || *b.Recursive)
}
