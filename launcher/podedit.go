package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"kurma.io/stager/launcher/images"

	"github.com/appc/spec/schema"
)

// findRuntimeImage finds the image that a pod's app names, by ID or by name
// and labels.
func findRuntimeImage(store *images.Store, want schema.RuntimeImage) (*images.Image, error) {
	if !want.ID.Empty() {
		return store.Find(want.ID.String())
	}
	if want.Name == nil {
		return nil, fmt.Errorf("%w: the app's image has neither ID nor name", images.ErrNotFound)
	}
	labels := make([]images.Label, 0, len(want.Labels))
	for _, l := range want.Labels {
		labels = append(labels, images.Label{Name: l.Name.String(), Value: l.Value})
	}
	return store.FindLabelled(want.Name.String(), labels)
}

// editPod puts image IDs and volumes into a pod manifest and leaves the rest,
// unknown fields included, as it was written.
func editPod(document []byte, ids []string, volumes map[string]string) ([]byte, error) {
	var pod map[string]json.RawMessage
	if err := json.Unmarshal(document, &pod); err != nil {
		return nil, fmt.Errorf("read pod manifest: %w", err)
	}
	if err := editApps(pod, ids); err != nil {
		return nil, fmt.Errorf("set images of pod: %w", err)
	}
	if err := editVolumes(pod, volumes); err != nil {
		return nil, fmt.Errorf("set volumes of pod: %w", err)
	}
	return json.Marshal(pod)
}

func editApps(pod map[string]json.RawMessage, ids []string) error {
	var apps []map[string]json.RawMessage
	if err := json.Unmarshal(pod["apps"], &apps); err != nil {
		return err
	}
	for i, app := range apps {
		image := make(map[string]json.RawMessage)
		if err := json.Unmarshal(app["image"], &image); err != nil {
			return err
		}
		if err := setField(image, "id", ids[i]); err != nil {
			return err
		}
		if err := setField(app, "image", image); err != nil {
			return err
		}
	}
	return setField(pod, "apps", apps)
}

// editVolumes has each of the named volumes come from the host, whatever the
// pod says of it; one that the pod makes read-only stays so.
func editVolumes(pod map[string]json.RawMessage, volumes map[string]string) error {
	var list []map[string]json.RawMessage
	if raw, ok := pod["volumes"]; ok {
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
	}
	for name, path := range volumes {
		entry := make(map[string]json.RawMessage)
		if err := setFields(entry, map[string]any{"name": name, "kind": "host", "source": path}); err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(v map[string]json.RawMessage) bool {
			var have string
			return json.Unmarshal(v["name"], &have) == nil && have == name
		})
		if i < 0 {
			list = append(list, entry)
			continue
		}
		if readOnly, ok := list[i]["readOnly"]; ok {
			entry["readOnly"] = readOnly
		}
		list[i] = entry
	}
	if len(volumes) == 0 {
		return nil
	}
	return setField(pod, "volumes", list)
}

func setFields(object map[string]json.RawMessage, fields map[string]any) error {
	for name, value := range fields {
		if err := setField(object, name, value); err != nil {
			return err
		}
	}
	return nil
}

func setField(object map[string]json.RawMessage, name string, value any) error {
	raw, err := json.Marshal(value)
	object[name] = raw
	return err
}
