package podplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kurma.io/stager/internal/strictjson"
)

// editPod puts the apps' image IDs and the options into a pod manifest, and gives the
// apps' own volumes names. The rest, unknown fields included, stays as it was written. Field
// names are found in any case, as manifest.DecodePod and the stager find them.
func editPod(document []byte, ids []string, o Options) ([]byte, error) {
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
	if err := editVolumes(pod, o.Volumes); err != nil {
		return nil, fmt.Errorf("set volumes of pod: %w", err)
	}
	if err := addMounts(pod, o.Mounts); err != nil {
		return nil, fmt.Errorf("mount paths: %w", err)
	}
	if o.HostNetwork {
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

// editVolumes makes each of the named volumes a path of the host, whatever the
// pod's manifest says. A volume that the pod makes read-only stays read-only.
func editVolumes(pod strictjson.Object, volumes map[string]string) error {
	if len(volumes) == 0 {
		return nil
	}
	var list []strictjson.Object
	if err := pod.Get("volumes", &list); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		entry := make(strictjson.Object)
		for field, value := range map[string]string{"name": name, "kind": "host", "source": volumes[name]} {
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

// shareNetwork writes into the pod's isolator of namespaces that the network is the
// host's, for the stager must also know. If there are several isolators it is the last.
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
