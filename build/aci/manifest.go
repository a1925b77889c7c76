package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/appc/spec/schema"
)

// imageManifest is a manifest as it goes into the image, and what names the file.
type imageManifest struct {
	json   []byte
	labels map[string]string
}

// fileName is PREFIX-VERSION-OS-ARCH.aci.
func (m imageManifest) fileName(prefix string) string {
	return strings.Join([]string{prefix, m.labels["version"], m.labels["os"], m.labels["arch"]}, "-") + ".aci"
}

// readManifest reads and checks an image manifest and sets its version label,
// unless the version is "".
func readManifest(path, version string) (imageManifest, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return imageManifest{}, fmt.Errorf("read image manifest: %w", err)
	}
	if version != "" {
		if data, err = setVersion(data, version); err != nil {
			return imageManifest{}, fmt.Errorf("set version in %s: %w", path, err)
		}
	}
	var parsed schema.ImageManifest
	if err := json.Unmarshal(data, &parsed); err != nil {
		return imageManifest{}, fmt.Errorf("read image manifest %s: %s", path, strings.TrimSpace(err.Error()))
	}
	m := imageManifest{json: data, labels: make(map[string]string)}
	for _, label := range parsed.Labels {
		m.labels[label.Name.String()] = label.Value
	}
	return m, nil
}

// setVersion changes the one label and keeps whatever else the manifest says.
func setVersion(manifest []byte, version string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(manifest, &fields); err != nil {
		return nil, err
	}
	type label struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	var labels []label
	if raw, ok := fields["labels"]; ok {
		if err := json.Unmarshal(raw, &labels); err != nil {
			return nil, err
		}
	}
	kept := []label{{"version", version}}
	for _, l := range labels {
		if l.Name != "version" {
			kept = append(kept, l)
		}
	}
	var err error
	if fields["labels"], err = json.Marshal(kept); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	err = enc.Encode(fields)
	return out.Bytes(), err
}
