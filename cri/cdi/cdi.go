// Package cdi finds devices of the Container Device Interface (CDI): it reads the specs that say what a device changes
// in a container. The specs are files of the node's administrator and of device drivers.
package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Limits of a spec file's size and of the entries of a folder with specs.
const (
	maxSize    = 1 << 20
	maxEntries = 4096
)

// Change is what a device changes in a container.
type Change struct {
	Device string // VENDOR/CLASS=NAME
	Edits  specs.ContainerEdits
}

// Find returns the changes of the devices with these names, each device once, in their order. Before the changes of a
// spec's first device are those that the spec has for all its devices. Specs are the *.json and *.yaml of the folders;
// a device in a later folder replaces one with its name in an earlier. A wrong file is an error only if a device is not
// found.
func Find(directories, names []string) ([]Change, error) {
	if len(names) == 0 {
		return nil, nil
	}
	all := make(map[string]entry)
	var wrong []error
	for priority, dir := range directories {
		wrong = append(wrong, addFolder(all, dir, priority)...)
	}
	var changes []Change
	found, begun := make(map[string]bool), make(map[*specs.Spec]bool)
	for _, name := range names {
		if found[name] {
			continue
		}
		e, ok := all[name]
		switch {
		case !ok:
			return nil, missing(name, directories, wrong)
		case e.other != "":
			return nil, fmt.Errorf("CDI device %q: both in %s and in %s", name, e.file, e.other)
		case !begun[e.spec]:
			changes = append(changes, Change{name, e.spec.ContainerEdits})
		}
		changes = append(changes, Change{name, e.device.ContainerEdits})
		found[name], begun[e.spec] = true, true
	}
	return changes, nil
}

// missing says that no spec has a device, in one line, and which files could not be read.
func missing(name string, directories []string, wrong []error) error {
	text := fmt.Sprintf("CDI device %q: in no spec of %s", name, strings.Join(directories, ", "))
	for _, err := range wrong {
		text += fmt.Sprintf("; %.300s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return errors.New(text)
}

// entry is a device in a spec file.
type entry struct {
	file     string
	priority int
	other    string // another file of that priority that has the device too; "" for none
	spec     *specs.Spec
	device   specs.Device
}

// addFolder adds the devices of a folder's files to all, by their names.
func addFolder(all map[string]entry, dir string, priority int) (wrong []error) {
	files, err := list(dir)
	if err != nil {
		return []error{err}
	}
	for _, file := range files {
		spec, err := read(file)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			continue
		}
		for _, d := range spec.Devices {
			name := spec.Kind + "=" + d.Name
			e := entry{file: file, priority: priority, spec: spec, device: d}
			if earlier, ok := all[name]; ok && earlier.priority == priority {
				e.other = earlier.file
			}
			all[name] = e
		}
	}
	return wrong
}

// list returns the spec files of a folder, which may be missing.
func list(dir string) (files []string, err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(names) > maxEntries:
		return nil, fmt.Errorf("%s: more than %d entries", dir, maxEntries)
	}
	slices.Sort(names)
	for _, name := range names {
		if ext := filepath.Ext(name); ext == ".json" || ext == ".yaml" {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// read reads a spec file. JSON is YAML.
func read(file string) (*specs.Spec, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO does not wait for its writer
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSize:
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	return parse(text)
}

func parse(text []byte) (*specs.Spec, error) {
	spec := new(specs.Spec)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(spec); err != nil {
		return nil, fmt.Errorf("not a CDI spec: %w", err)
	}
	if hasNull(spec) {
		return nil, errors.New("a device node, network device, hook or mount is null")
	}
	if err := specs.ValidateVersion(spec); err != nil {
		return nil, fmt.Errorf("cdiVersion %q: %w", spec.Version, err)
	}
	vendor, class, _ := strings.Cut(spec.Kind, "/")
	if vendor == "" || class == "" || strings.ContainsAny(class, "/=") {
		return nil, fmt.Errorf("kind %q: want VENDOR/CLASS", spec.Kind)
	}
	seen := make(map[string]bool)
	for _, d := range spec.Devices {
		if d.Name == "" || seen[d.Name] {
			return nil, fmt.Errorf("device %q: without a name, or twice", d.Name)
		}
		seen[d.Name] = true
	}
	return spec, nil
}

// hasNull reports whether a list has a null, which the library would follow.
func hasNull(spec *specs.Spec) bool {
	all := []specs.ContainerEdits{spec.ContainerEdits}
	for _, d := range spec.Devices {
		all = append(all, d.ContainerEdits)
	}
	return slices.ContainsFunc(all, func(e specs.ContainerEdits) bool {
		return slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.NetDevices, nil) ||
			slices.Contains(e.Hooks, nil) || slices.Contains(e.Mounts, nil)
	})
}
