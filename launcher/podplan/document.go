package podplan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema"
)

// document is a pod manifest, which options edit: appc's types, and beside them the keys that these do not have.
type document struct {
	pod     *manifest.Pod
	unknown []unknownKey
	around  []string // warnings of the image's volumes that dropCovered has removed
}

// readDocument decodes a pod manifest and finds the images of its apps. File is the manifest's path. unknown comes
// with an error, too.
func (p *Planner) readDocument(file string, text []byte) (d document, err error) {
	tree, err := parse(text)
	if err != nil {
		tree = nil // DecodePod has the error
	}
	d.unknown = findUnknown(nil, tree, podKeys())
	if !utf8.Valid(text) { // JSON's decoder would put other characters into its paths
		return d, fmt.Errorf("read pod manifest %s: not UTF-8", file)
	}
	if text, err = p.withOwnForms(text, tree); err == nil {
		d.pod, err = manifest.DecodePod(text)
	}
	if err != nil {
		return d, fmt.Errorf("read pod manifest %s: %w", file, err)
	}
	for i, app := range d.pod.Apps {
		image, err := p.runtimeImage(app.Image)
		if err == nil {
			err = d.pod.Apps[i].Image.ID.Set(image.ID)
		}
		if err != nil {
			return d, fmt.Errorf("pod manifest %s: app %q: %w", file, app.Name, err)
		}
	}
	return d, nil
}

// runtimeImage finds the image that a pod's app names: by ID, by name and labels, or as Images.Find does.
func (p *Planner) runtimeImage(want schema.RuntimeImage) (*images.Image, error) {
	if !want.ID.Empty() {
		return p.Images.Find(want.ID.String())
	}
	if want.Name == nil {
		return nil, errors.New("image: neither ID nor name")
	}
	if len(want.Labels) == 0 {
		return p.Images.Find(want.Name.String())
	}
	return p.Images.FindLabelled(want.Name.String(), want.Labels)
}

// volumeNames returns the names of the pod's volumes.
func (d *document) volumeNames() []string {
	var all []string
	for _, v := range d.pod.Volumes {
		all = append(all, v.Name.String())
	}
	return all
}

// encode returns the document as JSON, with its unknown keys where they were.
func (d *document) encode() ([]byte, error) {
	pod, err := treeOf(d.pod.PodManifest)
	if err != nil {
		return nil, err
	}
	setIsolators(pod, d.pod.Isolators)
	apps, _ := pod["apps"].([]any)
	for i, app := range apps {
		if section, ok := app.(map[string]any)["app"].(map[string]any); ok {
			setIsolators(section, d.pod.AppIsolators[d.pod.Apps[i].Name.String()])
		}
	}
	for _, u := range d.unknown {
		if object, ok := find(pod, u.place).(map[string]any); ok {
			object[u.key] = u.value
		}
	}
	return json.Marshal(pod)
}

// treeOf returns a value of appc's types as the objects, lists and values of its JSON, without nulls.
func treeOf(value any) (map[string]any, error) {
	text, err := json.Marshal(value)
	for wrapped := (*json.MarshalerError)(nil); errors.As(err, &wrapped); {
		err = wrapped.Err // json names Go's types around it
	}
	if err != nil {
		return nil, err
	}
	tree, err := parse(text)
	if err != nil {
		return nil, err
	}
	return withoutNulls(tree).(map[string]any), nil
}

// parse decodes JSON into objects, lists and values, with numbers as they are written.
func parse(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return value, decoder.Decode(&value)
}

func withoutNulls(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
			} else {
				v[key] = withoutNulls(inner)
			}
		}
	}
	return value
}

func setIsolators(object map[string]any, isolators []manifest.Isolator) {
	var all []any
	for _, isolator := range isolators {
		all = append(all, map[string]any{"name": isolator.Name, "value": isolator.Value})
	}
	if all != nil {
		object["isolators"] = all
	}
}
