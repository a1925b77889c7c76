package main

import (
	"fmt"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/strictjson"

	"github.com/appc/spec/schema/types"
)

// The stager finds a host volume by its name, so that every one of a pod needs a
// name of its own. An app's, which goes before the pod's in its mount (appc,
// pods.md, mounts), may have one that is taken: it gets another, which nothing in
// the pod goes by.

// nameAppVolumes gives the host volumes that apps have for themselves names that
// stand for one source and way to mount it each.
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

// sameMount tells whether one mount in the stager's root can be both volumes.
func sameMount(a, b types.Volume) bool {
	return a.Kind == b.Kind && a.Source == b.Source && isSet(a.ReadOnly) == isSet(b.ReadOnly) &&
		(a.Recursive == nil || *a.Recursive) == (b.Recursive == nil || *b.Recursive)
}

func isSet(b *bool) bool { return b != nil && *b }

// planAppVolumes adds the host volumes that apps have for themselves. The stager
// makes those that are empty.
func planAppVolumes(pod *manifest.Pod, all []pods.Volume) ([]pods.Volume, error) {
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
			volume, err := planVolume(*v)
			if err != nil {
				return nil, fmt.Errorf("app %q: %w", app.Name, err)
			}
			all, have[volume.Name] = append(all, volume), true
		}
	}
	return all, nil
}
