package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// imageManifest is a manifest as written to the image, and the data for the file's name.
type imageManifest struct {
	json   []byte
	labels map[string]string
}

// fileName returns PREFIX-VERSION-OS-ARCH.aci.
func (m imageManifest) fileName(prefix string) string {
	return strings.Join([]string{prefix, m.labels["version"], m.labels["os"], m.labels["arch"]}, "-") + ".aci"
}

// readManifest reads the manifest for an image, completes it, and checks it.
func readManifest(o options) (imageManifest, error) {
	data, err := os.ReadFile(o.manifest)
	if err != nil {
		return imageManifest{}, fmt.Errorf("read image manifest: %w", err)
	}
	if o.version != "" {
		if data, err = edit(data, func(f fields) error { return setLabel(f, "version", o.version) }); err != nil {
			return imageManifest{}, fmt.Errorf("set version in %s: %w", o.manifest, err)
		}
	}
	if o.arch != "" {
		if data, err = edit(data, func(f fields) error { return setArch(f, o.arch) }); err != nil {
			return imageManifest{}, fmt.Errorf("set architecture in %s: %w", o.manifest, err)
		}
	}
	if o.stager != "" {
		if data, err = edit(data, o.setNames); err != nil {
			return imageManifest{}, fmt.Errorf("set names in %s: %w", o.manifest, err)
		}
	}
	// Not appc's own type: it refuses isolators that it does not know, which images may have.
	parsed, err := manifest.DecodeImage(data)
	if err != nil {
		return imageManifest{}, fmt.Errorf("read image manifest %s: %s", o.manifest, strings.TrimSpace(err.Error()))
	}
	m := imageManifest{json: data, labels: make(map[string]string)}
	for _, label := range parsed.Labels {
		m.labels[label.Name.String()] = label.Value
	}
	return m, nil
}

// fields are the fields of a JSON object, including fields that an edit does not know.
type fields map[string]json.RawMessage

// edit changes a manifest and keeps all other fields.
func edit(manifest []byte, change func(fields) error) ([]byte, error) {
	var f fields
	if err := json.Unmarshal(manifest, &f); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errors.New("must be an object, is null")
	}
	if err := change(f); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	err := enc.Encode(f)
	return out.Bytes(), err
}

// get decodes a field, if the object has it.
func (f fields) get(key string, value any) error {
	if raw, ok := f[key]; ok {
		if err := json.Unmarshal(raw, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func (f fields) set(key string, value any) (err error) {
	f[key], err = json.Marshal(value)
	return err
}

// nameAndValue is a label or an annotation.
type nameAndValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// setArch sets the arch label. Appc has its own names of architectures.
func setArch(f fields, arch string) error {
	_, appcArch, err := types.ToAppcOSArch("linux", arch, "")
	if err != nil {
		return err
	}
	return setLabel(f, "arch", appcArch)
}

func setLabel(f fields, name, value string) error {
	var labels []nameAndValue
	if err := f.get("labels", &labels); err != nil {
		return err
	}
	labels = slices.DeleteFunc(labels, func(l nameAndValue) bool { return l.Name == name })
	return f.set("labels", append([]nameAndValue{{name, value}}, labels...))
}

// named stands in a stager's manifest for a name from package names: it is the file that has the
// name. An appc manifest must have both names.
const named = "names/names.go"

// setNames completes a stager's manifest: the image's name, the program to execute, and the annotations that tell a
// daemon where the logs and the apps' events are, and what the stager adds to the standard tables. A manifest with
// other names keeps them: its stager was not built with package names.
func (o options) setNames(f fields) error {
	var name string
	var exec []string
	var annotations []nameAndValue
	var app fields
	if err := cmp.Or(f.get("name", &name), f.get("app", &app), f.get("annotations", &annotations)); err != nil {
		return err
	}
	if app == nil {
		return errors.New("app: missing")
	}
	if err := app.get("exec", &exec); err != nil {
		return fmt.Errorf("app.%w", err)
	}
	if len(exec) == 0 {
		return errors.New("app.exec: missing")
	}
	if name == named {
		name = names.Image
	}
	for i, arg := range exec {
		if arg == "/"+named {
			exec[i] = names.Exec
		}
	}
	if !slices.ContainsFunc(annotations, func(a nameAndValue) bool { return a.Name == names.LogDirAnnotation }) {
		annotations = append(annotations,
			nameAndValue{names.LogDirAnnotation, names.LogDir},
			nameAndValue{names.EventsAnnotation, names.EventsFile})
	}
	if o.isolators != nil {
		annotations = append(annotations, nameAndValue{names.IsolatorsAnnotation, strings.Join(o.isolators, " ")})
	}
	if o.configKeys != nil {
		annotations = append(annotations, nameAndValue{names.KeysAnnotation, strings.Join(o.configKeys, " ")})
	}
	return cmp.Or(f.set("name", name), app.set("exec", exec), f.set("app", app), f.set("annotations", annotations))
}
