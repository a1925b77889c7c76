package images

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/appc/spec/schema/types"
)

// Manifest is the part of an image manifest that the launcher needs. An import checks the
// complete document once; later only this part is read.
type Manifest struct {
	Raw          json.RawMessage // as it is in the image
	Name         string
	Labels       map[string]string // values by names
	Dependencies []Dependency
	Annotations  map[string]string // values by names
	App          *App              // nil for an image that is only a layer
}

// NameValue is a label, an annotation or an environment variable, as appc writes it.
type NameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Dependency is an image that another one is built on.
type Dependency struct {
	Name   string
	ID     string // "" for the latest image with the name and the labels
	Labels map[string]string
}

// App is how an image is executed, as far as it matters for a stager.
type App struct {
	Exec        []string    `json:"exec"`
	Environment []NameValue `json:"environment"`
}

// wireManifest has the form of the document. appc's types check names, labels, operating
// system and architecture.
type wireManifest struct {
	ACKind       types.ACKind       `json:"acKind"`
	ACVersion    types.SemVer       `json:"acVersion"`
	Name         types.ACIdentifier `json:"name"`
	Labels       types.Labels       `json:"labels"`
	Dependencies types.Dependencies `json:"dependencies"`
	Annotations  types.Annotations  `json:"annotations"`
	App          *App               `json:"app"`
}

// parseManifest reads an image manifest.
func parseManifest(data []byte) (*Manifest, error) {
	var wire wireManifest
	if err := json.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("parse image manifest: %w", err)
	}
	if wire.ACKind != "ImageManifest" {
		return nil, fmt.Errorf("parse image manifest: acKind is %q, not \"ImageManifest\"", wire.ACKind)
	}
	if wire.Name.Empty() {
		return nil, errors.New("parse image manifest: no name")
	}
	m := &Manifest{
		Raw: data, Name: wire.Name.String(), Labels: labelsOf(wire.Labels),
		Annotations: make(map[string]string), App: wire.App,
	}
	for _, a := range wire.Annotations {
		m.Annotations[a.Name.String()] = a.Value
	}
	for _, d := range wire.Dependencies {
		dep := Dependency{Name: d.ImageName.String(), Labels: labelsOf(d.Labels)}
		if d.ImageID != nil {
			dep.ID = d.ImageID.String()
		}
		m.Dependencies = append(m.Dependencies, dep)
	}
	return m, nil
}

func labelsOf(in types.Labels) map[string]string {
	out := make(map[string]string, len(in))
	for _, l := range in {
		out[l.Name.String()] = l.Value
	}
	return out
}

// Version returns the value of the label "version".
func (m *Manifest) Version() string { return m.Labels["version"] }

// hasLabels reports whether the image has all of these labels.
func (m *Manifest) hasLabels(want map[string]string) bool {
	for name, value := range want {
		if have, ok := m.Labels[name]; !ok || have != value {
			return false
		}
	}
	return true
}
