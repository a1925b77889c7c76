package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/strictjson"

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

// editPod puts image IDs and what options ask for into a pod manifest, names the
// volumes of apps, and leaves the rest, unknown fields included, as it was written. Field
// names are found in any case, as manifest.DecodePod and the stager find them.
func editPod(document []byte, ids []string, o runOptions) ([]byte, error) {
	var pod strictjson.Object
	if err := json.Unmarshal(document, &pod); err != nil {
		return nil, fmt.Errorf("read pod manifest: %w", err)
	}
	if pod == nil {
		return nil, errors.New("read pod manifest: not a JSON object")
	}
	if err := editApps(pod, ids); err != nil {
		return nil, fmt.Errorf("set images of pod: %w", err)
	}
	if err := editVolumes(pod, o.volumes); err != nil {
		return nil, fmt.Errorf("set volumes of pod: %w", err)
	}
	if o.net == "host" {
		if err := shareNetwork(pod); err != nil {
			return nil, fmt.Errorf("set network of pod: %w", err)
		}
	}
	if err := nameAppVolumes(pod); err != nil {
		return nil, fmt.Errorf("name volumes of apps: %w", err)
	}
	return json.Marshal(pod)
}

func editApps(pod strictjson.Object, ids []string) error {
	var apps []strictjson.Object
	if err := pod.Get("apps", &apps); err != nil {
		return err
	}
	for i, app := range apps {
		image := make(strictjson.Object)
		if err := app.Get("image", &image); err != nil {
			return fmt.Errorf("apps[%d]: %w", i, err)
		}
		if app == nil || image == nil {
			return fmt.Errorf("apps[%d]: no image", i)
		}
		if err := image.Set("id", ids[i]); err != nil {
			return fmt.Errorf("apps[%d].image: %w", i, err)
		}
		if err := app.Set("image", image); err != nil {
			return fmt.Errorf("apps[%d]: %w", i, err)
		}
	}
	return pod.Set("apps", apps)
}

// editVolumes has each of the named volumes come from the host, whatever the
// pod says of it; one that the pod makes read-only stays so.
func editVolumes(pod strictjson.Object, volumes map[string]string) error {
	if len(volumes) == 0 {
		return nil
	}
	var list []strictjson.Object
	if err := pod.Get("volumes", &list); err != nil {
		return err
	}
	for name, path := range volumes {
		entry := make(strictjson.Object)
		for field, value := range map[string]string{"name": name, "kind": "host", "source": path} {
			if err := entry.Set(field, value); err != nil {
				return err
			}
		}
		i := slices.IndexFunc(list, func(v strictjson.Object) bool {
			var have string
			return v.Get("name", &have) == nil && have == name
		})
		if i < 0 {
			list = append(list, entry)
			continue
		}
		if key, err := list[i].Key("readOnly"); err == nil && key != "" {
			entry["readOnly"] = list[i][key]
		}
		list[i] = entry
	}
	return pod.Set("volumes", list)
}

// shareNetwork has the pod's isolator of namespaces, of several the last, say
// that the network is the host's: the stager must know, too.
func shareNetwork(pod strictjson.Object) error {
	var list []strictjson.Object
	if err := pod.Get("isolators", &list); err != nil {
		return err
	}
	theirs := strictjson.Object{"name": json.RawMessage(`"` + namespacesIsolator + `"`)}
	known := false
	for i, isolator := range list {
		var name string
		if err := isolator.Get("name", &name); err != nil {
			return fmt.Errorf("isolators[%d]: %w", i, err)
		}
		if name == namespacesIsolator {
			theirs, known = isolator, true
		}
	}
	if !known {
		list = append(list, theirs)
	}
	var value strictjson.Object
	if err := theirs.Get("value", &value); err != nil {
		return fmt.Errorf("isolator %s: %w", namespacesIsolator, err)
	}
	if value == nil {
		value = make(strictjson.Object)
	}
	value["net"] = json.RawMessage(`"host"`)
	return errors.Join(theirs.Set("value", value), pod.Set("isolators", list))
}
