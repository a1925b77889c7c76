package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// editPod puts image IDs and what options ask for into a pod manifest, names the
// volumes of apps, and leaves the rest, unknown fields included, as it was written. Field
// names are found in any case, as manifest.DecodePod and the stager find them.
func editPod(document []byte, ids []string, o runOptions) ([]byte, error) {
	var pod object
	if err := json.Unmarshal(document, &pod); err != nil {
		return nil, fmt.Errorf("read pod manifest: %w", err)
	}
	if pod == nil {
		return nil, errors.New("read pod manifest: it is no object")
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

func editApps(pod object, ids []string) error {
	var apps []object
	if err := pod.read("apps", &apps); err != nil {
		return err
	}
	for i, app := range apps {
		image := make(object)
		if err := app.read("image", &image); err != nil {
			return fmt.Errorf("apps[%d]: %w", i, err)
		}
		if app == nil || image == nil {
			return fmt.Errorf("apps[%d]: no image", i)
		}
		if err := image.set("id", ids[i]); err != nil {
			return fmt.Errorf("apps[%d].image: %w", i, err)
		}
		if err := app.set("image", image); err != nil {
			return fmt.Errorf("apps[%d]: %w", i, err)
		}
	}
	return pod.set("apps", apps)
}

// editVolumes has each of the named volumes come from the host, whatever the
// pod says of it; one that the pod makes read-only stays so.
func editVolumes(pod object, volumes map[string]string) error {
	if len(volumes) == 0 {
		return nil
	}
	var list []object
	if err := pod.read("volumes", &list); err != nil {
		return err
	}
	for name, path := range volumes {
		entry := make(object)
		for field, value := range map[string]string{"name": name, "kind": "host", "source": path} {
			if err := entry.set(field, value); err != nil {
				return err
			}
		}
		i := slices.IndexFunc(list, func(v object) bool {
			var have string
			return v.read("name", &have) == nil && have == name
		})
		if i < 0 {
			list = append(list, entry)
			continue
		}
		if key, err := list[i].key("readOnly"); err == nil && key != "" {
			entry["readOnly"] = list[i][key]
		}
		list[i] = entry
	}
	return pod.set("volumes", list)
}

// shareNetwork has the pod's isolator of namespaces, of several the last, say
// that the network is the host's: the stager must know, too.
func shareNetwork(pod object) error {
	var list []object
	if err := pod.read("isolators", &list); err != nil {
		return err
	}
	theirs := object{"name": json.RawMessage(`"` + namespacesIsolator + `"`)}
	known := false
	for i, isolator := range list {
		var name string
		if err := isolator.read("name", &name); err != nil {
			return fmt.Errorf("isolators[%d]: %w", i, err)
		}
		if name == namespacesIsolator {
			theirs, known = isolator, true
		}
	}
	if !known {
		list = append(list, theirs)
	}
	var value object
	if err := theirs.read("value", &value); err != nil {
		return fmt.Errorf("isolator %s: %w", namespacesIsolator, err)
	}
	if value == nil {
		value = make(object)
	}
	value["net"] = json.RawMessage(`"host"`)
	return errors.Join(theirs.set("value", value), pod.set("isolators", list))
}

// object is a JSON object whose fields are found in any case, as encoding/json
// matches them.
type object map[string]json.RawMessage

// key is the name under which a field is in the object, "" for none. To have it twice
// is an error: who reads it would take the one or the other.
func (o object) key(name string) (string, error) {
	var found []string
	for key := range o {
		if strings.EqualFold(key, name) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s: given twice, as %q and %q", name, found[0], found[1])
}

// read decodes a field; one that is missing leaves the value as it was.
func (o object) read(name string, into any) error {
	key, err := o.key(name)
	if err != nil || key == "" {
		return err
	}
	if err := json.Unmarshal(o[key], into); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// set puts a field in place of the one of that name, in whatever case.
func (o object) set(name string, value any) error {
	key, err := o.key(name)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	delete(o, key)
	o[name] = raw
	return nil
}
