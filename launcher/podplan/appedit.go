package podplan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// AppOptions is what a person asks for an image's app beside the image. What is empty stays as
// the image has it.
type AppOptions struct {
	Exec             string             // the program, in place of the image's exec
	ArgsAlone        bool               // the arguments are in place of the image's exec
	Env              []pods.Environment // replaces variables of the same name
	User, Group      string
	WorkingDirectory string
	Memory, CPU      string   // limits as appc writes quantities: "512Mi", "1500m"
	CapAdd, CapDrop  []string // "CAP_NET_ADMIN"; "ALL" in CapDrop
	Privileged       bool     // Kurma's isolator os/linux/privileged, in place of those of capabilities
	ReadOnlyRoot     bool     // appc's readOnlyRootFS
	Stdin            bool     // the app's stdin is open, for attach
	StdinOnce        bool     // and ends with the input of the first caller of attach
	TTY              bool     // the app has a terminal of its own
	TTYSize          string   // the first size of the terminal, "80x24"; "" for the stager's default

	Health map[string]string // annotations for the health check, by name
}

// isZero reports whether nothing is asked for.
func (a *AppOptions) isZero() bool {
	return a.Exec == "" && !a.ArgsAlone && a.Env == nil && a.User == "" && a.Group == "" && a.WorkingDirectory == "" &&
		a.Memory == "" && a.CPU == "" && a.CapAdd == nil && a.CapDrop == nil && !a.Privileged
}

// annotations returns the app's annotations for its stdin, its terminal and its health.
func (a *AppOptions) annotations() types.Annotations {
	var all types.Annotations
	switch {
	case a.Stdin && a.StdinOnce:
		all = append(all, types.Annotation{Name: names.StdinAnnotation, Value: "once"})
	case a.Stdin:
		all = append(all, types.Annotation{Name: names.StdinAnnotation, Value: "stream"})
	}
	if a.TTY {
		all = append(all, types.Annotation{Name: names.TTYAnnotation, Value: "true"})
	}
	if a.TTYSize != "" {
		all = append(all, types.Annotation{Name: names.TTYSizeAnnotation, Value: a.TTYSize})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Health)) {
		all = append(all, types.Annotation{Name: types.ACIdentifier(name), Value: a.Health[name]})
	}
	return all
}

// imagePod returns the manifest of a pod of one app. Arguments are added to the image's exec, or follow
// the program of the options.
func imagePod(image *images.Image, name string, args []string, o AppOptions) (document, error) {
	d := document{pod: &manifest.Pod{
		PodManifest:  schema.BlankPodManifest(),
		AppIsolators: make(map[string][]manifest.Isolator),
	}}
	app := schema.RuntimeApp{ReadOnlyRootFS: o.ReadOnlyRoot, Annotations: o.annotations()}
	if err := errors.Join(app.Name.Set(name), app.Image.ID.Set(image.ID)); err != nil {
		return d, err
	}
	runs := image.Manifest.App != nil && len(image.Manifest.App.Exec) > 0
	if !runs || len(args) > 0 || !o.isZero() {
		section, err := editSection(image, args, o)
		if err != nil {
			return d, err
		}
		app.App, d.pod.AppIsolators[name], d.unknown = section.app, section.isolators, section.unknown
	}
	d.pod.Apps = schema.AppList{app}
	return d, nil
}

// section is the app section of a pod of one app.
type section struct {
	app       *types.App
	isolators []manifest.Isolator
	unknown   []unknownKey // by their places in the pod
}

// sectionOf returns the image's app section; app is nil if the image has none.
func sectionOf(image *images.Image) (section, error) {
	decoded, err := manifest.DecodeImage(image.Manifest.Raw)
	if err != nil {
		return section{}, err
	}
	s := section{app: decoded.App, isolators: decoded.Isolators}
	for _, u := range unknownKeys(image.Manifest.Raw, keys{"app": podKeys()["apps"]["app"]}) {
		if len(u.place) > 0 && !slices.Contains(u.place, any("isolators")) { // their order changes
			u.place = append([]any{"apps", 0}, u.place...)
			s.unknown = append(s.unknown, u)
		}
	}
	return s, nil
}

// editSection returns the image's app section with the arguments and options. An image without an app gets one.
func editSection(image *images.Image, args []string, o AppOptions) (section, error) {
	s, err := sectionOf(image)
	if err != nil {
		return s, err
	}
	var exec []string
	switch {
	case o.Exec != "":
		exec = []string{o.Exec}
	case s.app != nil && !o.ArgsAlone:
		exec = fixedExec(image.Manifest, args)
	}
	if s.app == nil {
		s.app = &types.App{User: "0", Group: "0"}
	}
	s.app.Exec = slices.Concat(exec, args)
	if len(s.app.Exec) == 0 {
		return s, errors.New("image " + image.Manifest.Name + " has no program: name it and its arguments after --")
	}
	s.app.User = cmp.Or(o.User, s.app.User)
	s.app.Group = cmp.Or(o.Group, s.app.Group)
	s.app.WorkingDirectory = cmp.Or(o.WorkingDirectory, s.app.WorkingDirectory)
	for _, e := range o.Env {
		setVariable(s.app, types.EnvironmentVariable(e))
	}
	return s, s.editIsolators(o)
}

// takeOwnGroups gives an app, if the options have a user and no group, the groups of that user by the
// image's own files. The image's groups are those of its own user.
func (p *Planner) takeOwnGroups(app *types.App, image *images.Image, o AppOptions) error {
	if o.User == "" || o.Group != "" {
		return nil
	}
	layers, err := p.Images.Layers(image)
	if err != nil {
		return err
	}
	accounts, err := images.AccountsOf(layers)
	if err != nil {
		return fmt.Errorf("look up user %q: %w", o.User, err)
	}
	if account, ok := accounts.Find(o.User); ok { // else a file's owner, or a name that the stager refuses
		app.Group, app.SupplementaryGIDs = account.Group, account.Groups
	}
	return nil
}

// setVariable sets a variable of an app's environment, which overrides all of its name.
func setVariable(app *types.App, v types.EnvironmentVariable) {
	app.Environment = append(slices.DeleteFunc(app.Environment,
		func(old types.EnvironmentVariable) bool { return old.Name == v.Name }), v)
}

// fixedExec returns the words of an image's exec that arguments follow: all, but of an image that
// was converted from Docker only the entry point if there are arguments, as there.
func fixedExec(m *images.Manifest, args []string) []string {
	var entrypoint, command []string
	if len(args) == 0 ||
		json.Unmarshal([]byte(m.Annotations[names.EntrypointAnnotation]), &entrypoint) != nil ||
		json.Unmarshal([]byte(m.Annotations[names.CommandAnnotation]), &command) != nil ||
		!slices.Equal(slices.Concat(entrypoint, command), m.App.Exec) {
		return m.App.Exec
	}
	return entrypoint
}

// The isolators of the options.
const (
	memoryIsolator     = "resource/memory"
	cpuIsolator        = "resource/cpu"
	retainIsolator     = "os/linux/capabilities-retain-set"
	removeIsolator     = "os/linux/capabilities-remove-set"
	privilegedIsolator = "os/linux/privileged"
)

// editIsolators replaces the isolators that the options name.
func (s *section) editIsolators(o AppOptions) error {
	var more []manifest.Isolator
	replaced := []string{}
	for _, limit := range [][2]string{{memoryIsolator, o.Memory}, {cpuIsolator, o.CPU}} {
		if limit[1] == "" {
			continue
		}
		isolator, err := newIsolator(limit[0], map[string]string{"limit": limit[1]})
		if err != nil {
			return err
		}
		more, replaced = append(more, isolator), append(replaced, limit[0])
	}
	powers, names, err := s.powers(o)
	if err != nil {
		return err
	}
	more, replaced = append(more, powers...), append(replaced, names...)
	s.isolators = slices.DeleteFunc(s.isolators,
		func(i manifest.Isolator) bool { return slices.Contains(replaced, i.Name) })
	s.isolators = append(s.isolators, more...)
	return nil
}

// powers returns the isolator for the capabilities that the options name, if they do, and the names of the isolators
// that it replaces.
func (s *section) powers(o AppOptions) ([]manifest.Isolator, []string, error) {
	names := []string{retainIsolator, removeIsolator}
	switch {
	case o.Privileged: // has all capabilities, also those that the image's isolators take away
		isolator, err := newIsolator(privilegedIsolator, true)
		return []manifest.Isolator{isolator}, append(names, privilegedIsolator), err
	case len(o.CapAdd)+len(o.CapDrop) > 0:
		isolator, err := capabilityIsolator(s.isolators, o)
		return []manifest.Isolator{isolator}, names, err
	}
	return nil, nil, nil
}

func newIsolator(name string, value any) (manifest.Isolator, error) {
	text, err := json.Marshal(value)
	return manifest.Isolator{Name: name, Value: text}, err
}

// capabilityIsolator returns the isolator for the capabilities of the app's isolators, plus the options' CapAdd
// and minus CapDrop.
func capabilityIsolator(list []manifest.Isolator, o AppOptions) (manifest.Isolator, error) {
	have, err := capabilitySets(list)
	if err != nil {
		return manifest.Isolator{}, err
	}
	retain, remove := have[retainIsolator], have[removeIsolator]
	if retain == nil {
		retain = spec.DefaultCapabilities()
	}
	if slices.Contains(o.CapDrop, "ALL") {
		retain = nil
	}
	gone := func(name string) bool { return slices.Contains(remove, name) || slices.Contains(o.CapDrop, name) }
	retain = append(slices.DeleteFunc(slices.Clone(retain), gone), o.CapAdd...)
	if len(retain) == 0 { // appc has no empty set
		return newIsolator(removeIsolator, capabilitySet{spec.DefaultCapabilities()})
	}
	slices.Sort(retain)
	return newIsolator(retainIsolator, capabilitySet{slices.Compact(retain)})
}

// capabilitySet is the value of an isolator of capabilities.
type capabilitySet struct {
	Set []string `json:"set"`
}

// capabilitySets returns the capabilities that the isolators name, by the isolators' names.
func capabilitySets(list []manifest.Isolator) (map[string][]string, error) {
	have := make(map[string][]string)
	for _, isolator := range list {
		if isolator.Name != retainIsolator && isolator.Name != removeIsolator {
			continue
		}
		var value capabilitySet
		if err := json.Unmarshal(isolator.Value, &value); err != nil {
			return nil, fmt.Errorf("isolator %s: %w", isolator.Name, err)
		}
		have[isolator.Name] = append(have[isolator.Name], value.Set...)
	}
	return have, nil
}
