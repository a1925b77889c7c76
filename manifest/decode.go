package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/internal/strictjson"
)

// document is the manifest's JSON, with its parts not decoded yet.
type document struct {
	KurmaVersion  string                     `json:"kurmaVersion"`
	Name          string                     `json:"name,omitempty"`
	Pod           json.RawMessage            `json:"pod"`
	Images        map[string]json.RawMessage `json:"images"`
	AppImageOrder map[string][]string        `json:"appImageOrder"`
	StagerConfig  json.RawMessage            `json:"stagerConfig"`
}

// DecodePod decodes a pod manifest. An error is one line that begins with the field's path, such as
// "pod.apps", and has the field's value.
func DecodePod(data []byte) (*Pod, error) {
	const path = "pod"
	var fields strictjson.Object
	if err := strictjson.Unmarshal(path, data, &fields); err != nil {
		return nil, err
	}
	pod := &Pod{PodManifest: new(schema.PodManifest), AppIsolators: map[string][]Isolator{}, JSON: slices.Clone(data)}
	perApp, err := takeAppsIsolators(path, fields)
	if err != nil {
		return nil, err
	}
	if pod.Isolators, err = takeIsolators(path, fields); err != nil {
		return nil, err
	}
	if err := strictjson.Unmarshal(path, mustMarshal(fields), pod.PodManifest); err != nil {
		return nil, err
	}
	for i, app := range pod.Apps {
		if app.App != nil {
			pod.AppIsolators[app.Name.String()] = perApp[i]
		}
	}
	return pod, nil
}

// DecodeImage decodes an image manifest. An error is one line that begins with the field's path,
// such as "image.labels", and has the field's value.
func DecodeImage(data []byte) (*Image, error) { return decodeImage("image", data) }

func decode(data []byte) (*Manifest, error) {
	var doc document
	if err := strictjson.Unmarshal("", data, &doc); err != nil {
		return nil, err
	}
	if strictjson.IsNull(doc.Pod) {
		return nil, errors.New("pod: missing")
	}
	m := &Manifest{
		KurmaVersion:  doc.KurmaVersion,
		Name:          doc.Name,
		AppImageOrder: doc.AppImageOrder,
	}
	if !strictjson.IsNull(doc.StagerConfig) {
		m.StagerConfig = doc.StagerConfig
	}
	var err error
	if m.Pod, err = DecodePod(doc.Pod); err != nil {
		return nil, err
	}
	if doc.Images != nil {
		m.Images = make(map[string]*Image, len(doc.Images))
	}
	for _, id := range slices.Sorted(maps.Keys(doc.Images)) {
		if m.Images[id], err = decodeImage(imagePath(id), doc.Images[id]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func decodeImage(path string, data []byte) (*Image, error) {
	var fields strictjson.Object
	if err := strictjson.Unmarshal(path, data, &fields); err != nil {
		return nil, err
	}
	image := &Image{ImageManifest: new(schema.ImageManifest), JSON: slices.Clone(data)}
	var err error
	if image.Isolators, err = takeAppIsolators(path, fields); err != nil {
		return nil, err
	}
	if err := strictjson.Unmarshal(path, mustMarshal(fields), image.ImageManifest); err != nil {
		return nil, err
	}
	return image, nil
}

// takeAppsIsolators removes the isolators from every app of a pod, and returns them in the order of
// the apps.
func takeAppsIsolators(path string, pod strictjson.Object) ([][]Isolator, error) {
	var apps []strictjson.Object
	var isolators [][]Isolator
	err := edit(path, pod, "apps", &apps, func(path string) error {
		for i, app := range apps {
			taken, err := takeAppIsolators(fmt.Sprintf("%s[%d]", path, i), app)
			if err != nil {
				return err
			}
			isolators = append(isolators, taken)
		}
		return nil
	})
	return isolators, err
}

// takeAppIsolators removes the isolators from the field "app" of owner, and returns them.
func takeAppIsolators(path string, owner strictjson.Object) ([]Isolator, error) {
	var app strictjson.Object
	var isolators []Isolator
	err := edit(path, owner, "app", &app, func(path string) (err error) {
		if err := checkVariables(path, app); err != nil {
			return err
		}
		isolators, err = takeIsolators(path, app)
		return err
	})
	return isolators, err
}

// checkVariables refuses a wrong name of a variable. The error has no values, which may be secrets; the error of
// appc's decoder would have all of them.
func checkVariables(path string, app strictjson.Object) error {
	key, err := findKey(path, app, "environment")
	var list []struct{ Name string }
	if err != nil || json.Unmarshal(app[key], &list) != nil {
		return err // of what is not a list of variables, the decoder reports the element
	}
	var named types.Environment
	for _, variable := range list {
		named = append(named, types.EnvironmentVariable{Name: variable.Name})
	}
	if _, err := named.MarshalJSON(); err != nil {
		return fmt.Errorf("%s: %w", strictjson.Join(path, key), err)
	}
	return nil
}

// takeIsolators removes the field "isolators" from owner, and returns it.
func takeIsolators(path string, owner strictjson.Object) ([]Isolator, error) {
	key, err := findKey(path, owner, "isolators")
	if key == "" || err != nil {
		return nil, err
	}
	raw := owner[key]
	delete(owner, key)
	var isolators []Isolator
	if err := strictjson.Unmarshal(strictjson.Join(path, key), raw, &isolators); err != nil {
		return nil, err
	}
	for i, isolator := range isolators {
		if isolator.Name == "" {
			return nil, fmt.Errorf("%s[%d].name: missing", strictjson.Join(path, key), i)
		}
	}
	return isolators, nil
}

// edit decodes owner's field name into part, calls f to change part, and encodes part into the
// field again. It does not change a field that is absent or null.
func edit(path string, owner strictjson.Object, name string, part any, f func(path string) error) error {
	key, err := findKey(path, owner, name)
	if err != nil || key == "" || strictjson.IsNull(owner[key]) {
		return err
	}
	if err := strictjson.Unmarshal(strictjson.Join(path, key), owner[key], part); err != nil {
		return err
	}
	if err := f(strictjson.Join(path, key)); err != nil {
		return err
	}
	owner[key] = mustMarshal(part)
	return nil
}

// findKey returns the key under which the object at path has the field, or "".
func findKey(path string, object strictjson.Object, name string) (string, error) {
	key, err := object.Key(name)
	if err != nil {
		return "", fmt.Errorf("%s.%w", path, err)
	}
	return key, nil
}

func imagePath(id string) string { return strictjson.Join("images", id) }

// mustMarshal encodes a value that was just decoded, which cannot fail.
func mustMarshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
