// Package manifest reads, checks and writes the Stager Manifest: the JSON document by which a Kurma
// daemon tells a stager what to run (Kurma Stager Specification, "Stager Manifest").
package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
)

// maxSize is the largest document that Read accepts, in bytes.
const maxSize = 64 << 20

// Manifest is a Stager Manifest. Its fields are those of the document, and errors use the
// document's names.
type Manifest struct {
	KurmaVersion string
	Name         string // "" if the daemon set none
	Pod          *Pod
	Images       map[string]*Image // by image ID

	// AppImageOrder has, by app name, the image IDs of the layers of the
	// app's root, the topmost first.
	AppImageOrder map[string][]string

	// StagerConfig is the administrator's configuration, unchanged: nil if it was absent or
	// null, otherwise a JSON object.
	StagerConfig json.RawMessage
}

// Pod is a pod manifest (appc, pods.md).
type Pod struct {
	// PodManifest has no isolators, neither the pod's nor the apps': appc's package rejects
	// isolators that it does not know, which the specification allows.
	*schema.PodManifest

	Isolators    []Isolator            // the pod's
	AppIsolators map[string][]Isolator // by app name, from the pod's app sections

	// JSON is the document as it was read, isolators included.
	JSON json.RawMessage
}

// Image is an image manifest (appc, aci.md).
type Image struct {
	*schema.ImageManifest // without isolators, see Pod

	Isolators []Isolator // of the image's app section

	// JSON is the document as it was read, isolators included.
	JSON json.RawMessage
}

// Isolator is an isolator as in the document. Its name may be unknown.
type Isolator struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"` // nil if it was absent
}

// App is everything that the manifest says about one app of the pod.
type App struct {
	Name    string
	Runtime schema.RuntimeApp // the app's entry in the pod's list of apps
	ImageID string
	Image   *Image

	// App is the app section that applies: the pod's if it has one, otherwise the image's;
	// the two are not merged (pods.md, apps).
	App       *types.App
	Isolators []Isolator // that section's

	// Layers are the image IDs of the app's root, the topmost first, in the order of
	// AppImageOrder. A repeated ID is omitted, because its first occurrence hides it.
	Layers []string
}

// Read reads a manifest to the end of r and validates it. An error is one
// line that names the field and its value.
func Read(r io.Reader) (*Manifest, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("read manifest: larger than %d bytes", maxSize)
	}
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Write writes m as one JSON document. It writes the field JSON of the pod and the images, which
// DecodePod and DecodeImage set.
func (m *Manifest) Write(w io.Writer) error {
	if m.Pod == nil || m.Pod.JSON == nil {
		return errors.New("encode manifest: pod: no JSON")
	}
	images := make(map[string]json.RawMessage, len(m.Images))
	for _, id := range slices.Sorted(maps.Keys(m.Images)) {
		if images[id] = m.Images[id].JSON; images[id] == nil {
			return fmt.Errorf("encode manifest: %s: no JSON", imagePath(id))
		}
	}
	config := m.StagerConfig
	if config == nil {
		config = json.RawMessage("{}")
	}
	data, err := json.Marshal(document{
		KurmaVersion:  m.KurmaVersion,
		Name:          m.Name,
		Pod:           m.Pod.JSON,
		Images:        images,
		AppImageOrder: m.AppImageOrder,
		StagerConfig:  config,
	})
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// Apps returns the pod's apps, in the pod's order. The manifest must be valid.
func (m *Manifest) Apps() []App {
	apps := make([]App, 0, len(m.Pod.Apps))
	for _, runtime := range m.Pod.Apps {
		name, id := runtime.Name.String(), runtime.Image.ID.String()
		app := App{
			Name:      name,
			Runtime:   runtime,
			ImageID:   id,
			Image:     m.Images[id],
			App:       runtime.App,
			Isolators: m.Pod.AppIsolators[name],
			Layers:    distinct(m.AppImageOrder[name]),
		}
		if app.App == nil {
			app.App, app.Isolators = app.Image.App, app.Image.Isolators
		}
		apps = append(apps, app)
	}
	return apps
}

func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	var out []string
	for _, id := range ids {
		if !seen[id] {
			out = append(out, id)
		}
		seen[id] = true
	}
	return out
}
