package podplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// AppOptions is what a person asks for an image's app beside the image. What is empty stays as
// the image has it.
type AppOptions struct {
	Exec             string             // the program, in place of the image's exec
	Env              []pods.Environment // replaces variables of the same name
	User, Group      string
	WorkingDirectory string
	Memory, CPU      string   // limits as appc writes quantities: "512Mi", "1500m"
	CapAdd, CapDrop  []string // "CAP_NET_ADMIN"; "ALL" in CapDrop
	Stdin            bool     // the app's stdin stays open, for attach
	TTY              bool     // the app has a terminal of its own
}

// isZero reports whether nothing is asked for.
func (a *AppOptions) isZero() bool {
	return a.Exec == "" && a.Env == nil && a.User == "" && a.Group == "" && a.WorkingDirectory == "" && a.Memory == "" && a.CPU == "" &&
		a.CapAdd == nil && a.CapDrop == nil
}

// annotations returns the app's annotations for its stdin.
func (a *AppOptions) annotations() []map[string]string {
	var all []map[string]string
	if a.Stdin {
		all = append(all, map[string]string{"name": names.StdinAnnotation, "value": "stream"})
	}
	if a.TTY {
		all = append(all, map[string]string{"name": names.TTYAnnotation, "value": "true"})
	}
	return all
}

// imagePod writes the manifest of a pod of one app. Arguments are added to the image's exec, or follow
// the program of the options.
func imagePod(image *images.Image, name string, args []string, o Options) ([]byte, error) {
	app := map[string]any{"name": name, "image": map[string]string{"id": image.ID}}
	if len(args) > 0 || !o.App.isZero() {
		section, err := editSection(image, args, o.App)
		if err != nil {
			return nil, err
		}
		app["app"] = section
	}
	if annotations := o.App.annotations(); annotations != nil {
		app["annotations"] = annotations
	}
	pod, err := json.Marshal(map[string]any{
		"acKind":    "PodManifest",
		"acVersion": "0.8.11",
		"apps":      []any{app},
	})
	if err != nil {
		return nil, err
	}
	return editPod(pod, []string{image.ID}, o)
}

// editSection returns the image's app section with the arguments and options. The other
// fields stay as they are written there. An image without an app gets one if the options have
// a program.
func editSection(image *images.Image, args []string, o AppOptions) (strictjson.Object, error) {
	var document struct {
		App strictjson.Object `json:"app"`
	}
	if err := json.Unmarshal(image.Manifest.Raw, &document); err != nil {
		return nil, err
	}
	section := document.App
	var exec []string
	switch {
	case section == nil && o.Exec == "":
		return nil, errors.New("image " + image.Manifest.Name + " has no app: name its program with --exec")
	case section == nil:
		section = strictjson.Object{"user": json.RawMessage(`"0"`), "group": json.RawMessage(`"0"`)}
	default:
		exec = fixedExec(image.Manifest, args)
	}
	if o.Exec != "" {
		exec = []string{o.Exec}
	}
	if err := section.Set("exec", slices.Concat(exec, args)); err != nil {
		return nil, err
	}
	for _, field := range [][2]string{{"user", o.User}, {"group", o.Group}, {"workingDirectory", o.WorkingDirectory}} {
		if field[1] == "" {
			continue
		}
		if err := section.Set(field[0], field[1]); err != nil {
			return nil, err
		}
	}
	return section, errors.Join(editEnvironment(section, o.Env), editIsolators(section, o))
}

// fixedExec returns the words of an image's exec that arguments follow: all, but of an image that
// was converted from Docker only the entry point if there are arguments, as there.
func fixedExec(m *images.Manifest, args []string) []string {
	var entrypoint, command []string
	if len(args) == 0 ||
		json.Unmarshal([]byte(m.Annotations[images.EntrypointAnnotation]), &entrypoint) != nil ||
		json.Unmarshal([]byte(m.Annotations[images.CommandAnnotation]), &command) != nil ||
		!slices.Equal(slices.Concat(entrypoint, command), m.App.Exec) {
		return m.App.Exec
	}
	return entrypoint
}

// editEnvironment sets variables.
func editEnvironment(section strictjson.Object, env []pods.Environment) error {
	if len(env) == 0 {
		return nil
	}
	var have []pods.Environment
	if err := section.Get("environment", &have); err != nil {
		return err
	}
	for _, e := range env {
		have = slices.DeleteFunc(have, func(old pods.Environment) bool { return old.Name == e.Name })
		have = append(have, e)
	}
	return section.Set("environment", have)
}

// isolator is an isolator as a manifest has it.
type isolator struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// The isolators of the options.
const (
	memoryIsolator = "resource/memory"
	cpuIsolator    = "resource/cpu"
	retainIsolator = "os/linux/capabilities-retain-set"
	removeIsolator = "os/linux/capabilities-remove-set"
)

// editIsolators replaces the isolators that the options name.
func editIsolators(section strictjson.Object, o AppOptions) error {
	var list []strictjson.Object
	if err := section.Get("isolators", &list); err != nil {
		return err
	}
	var more []isolator
	var replaced []string
	for _, limit := range [][2]string{{memoryIsolator, o.Memory}, {cpuIsolator, o.CPU}} {
		if limit[1] != "" {
			more = append(more, isolator{limit[0], map[string]string{"limit": limit[1]}})
			replaced = append(replaced, limit[0])
		}
	}
	if len(o.CapAdd)+len(o.CapDrop) > 0 {
		capabilities, err := capabilityIsolator(list, o)
		if err != nil {
			return err
		}
		more = append(more, capabilities)
		replaced = append(replaced, retainIsolator, removeIsolator)
	}
	if more == nil {
		return nil
	}
	all := []any{}
	for _, have := range list {
		var name string
		if err := have.Get("name", &name); err != nil {
			return fmt.Errorf("isolators: %w", err)
		}
		if !slices.Contains(replaced, name) {
			all = append(all, have)
		}
	}
	for _, m := range more {
		all = append(all, m)
	}
	return section.Set("isolators", all)
}

// capabilityIsolator returns the isolator for the capabilities that the app's isolators leave it, with
// those that the options add and without those that they drop.
func capabilityIsolator(list []strictjson.Object, o AppOptions) (isolator, error) {
	var retain, remove []string
	for _, have := range list {
		var name string
		var value struct{ Set []string }
		if err := have.Get("name", &name); err != nil || name != retainIsolator && name != removeIsolator {
			continue
		}
		if err := have.Get("value", &value); err != nil {
			return isolator{}, fmt.Errorf("isolator %s: %w", name, err)
		}
		if name == retainIsolator {
			retain = append(retain, value.Set...)
		} else {
			remove = append(remove, value.Set...)
		}
	}
	if retain == nil {
		retain = spec.DefaultCapabilities()
	}
	if slices.Contains(o.CapDrop, "ALL") {
		retain = nil
	}
	gone := func(name string) bool { return slices.Contains(remove, name) || slices.Contains(o.CapDrop, name) }
	retain = slices.DeleteFunc(slices.Clone(retain), gone)
	retain = append(retain, o.CapAdd...)
	if len(retain) == 0 { // appc has no empty set
		return isolator{removeIsolator, map[string]any{"set": spec.DefaultCapabilities()}}, nil
	}
	slices.Sort(retain)
	return isolator{retainIsolator, map[string]any{"set": slices.Compact(retain)}}, nil
}

// Mount is a path of the host that every app of a pod has at a path of its own.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// addMounts adds a volume for each mount to the pod, and a mount of it to each app.
func addMounts(pod strictjson.Object, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	var volumes, apps []strictjson.Object
	if err := errors.Join(pod.Get("volumes", &volumes), pod.Get("apps", &apps)); err != nil {
		return err
	}
	taken := make(map[string]bool)
	for _, v := range volumes {
		var name string
		_ = v.Get("name", &name) // a volume without a name is refused later
		taken[name] = true
	}
	for _, m := range mounts {
		name := freeName("launcher-path", func(name string) bool { return taken[name] })
		taken[name] = true
		volume := make(strictjson.Object)
		for field, value := range map[string]any{"name": name, "kind": "host", "source": m.Source, "readOnly": m.ReadOnly} {
			if err := volume.Set(field, value); err != nil {
				return err
			}
		}
		volumes = append(volumes, volume)
		for i, app := range apps {
			var own []any
			if err := app.Get("mounts", &own); err != nil {
				return fmt.Errorf("apps[%d]: %w", i, err)
			}
			if err := app.Set("mounts", append(own, map[string]string{"volume": name, "path": m.Target})); err != nil {
				return fmt.Errorf("apps[%d]: %w", i, err)
			}
		}
	}
	return errors.Join(pod.Set("volumes", volumes), pod.Set("apps", apps))
}
