package sources

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"

	"github.com/appc/spec/schema/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// imageManifest has the form of appc's document.
type imageManifest struct {
	ACKind       string             `json:"acKind"`
	ACVersion    string             `json:"acVersion"`
	Name         string             `json:"name"`
	Labels       []images.NameValue `json:"labels,omitempty"`
	App          *app               `json:"app,omitempty"`
	Annotations  []images.NameValue `json:"annotations,omitempty"`
	Dependencies []dependency       `json:"dependencies,omitempty"`
}

type dependency struct {
	ImageName string `json:"imageName"`
	ImageID   string `json:"imageID"`
}

type app struct {
	Exec              []string           `json:"exec"`
	User              string             `json:"user"`
	Group             string             `json:"group"`
	SupplementaryGIDs []int              `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory  string             `json:"workingDirectory,omitempty"`
	Environment       []images.NameValue `json:"environment,omitempty"`
	MountPoints       []mountPoint       `json:"mountPoints,omitempty"`
	Ports             []port             `json:"ports,omitempty"`
}

type mountPoint struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	Count    int    `json:"count"`
}

// maxSettings is how many variables, how many labels and how many volumes an image may have. Each is compared with all
// others.
const maxSettings = 1000

// layerManifest is the manifest of a layer's image.
func layerManifest(chain string) []byte {
	document, err := json.Marshal(imageManifest{
		ACKind: "ImageManifest", ACVersion: "0.8.11",
		Name: images.LayerName(chain),
	})
	if err != nil {
		panic(err) // it has strings only
	}
	return document
}

// convert writes the manifest of an image of Docker or OCI: entry point and command, environment,
// user, working directory, volumes, ports, labels, and the layers, the lowest first, as
// dependencies. An image that says nothing to execute has an app without a program, which its caller adds.
func convert(config *v1.ConfigFile, name, version string, layers []*images.Image) ([]byte, error) {
	c := config.Config
	if most := max(len(c.Env), len(c.Labels), len(c.Volumes)); most > maxSettings {
		return nil, fmt.Errorf("the configuration has %d variables, labels or volumes, more than %d", most, maxSettings)
	}
	m := imageManifest{ACKind: "ImageManifest", ACVersion: "0.8.11", Name: name, Labels: labels(config, version)}
	for _, layer := range layers {
		m.Dependencies = append(m.Dependencies, dependency{layer.Manifest.Name, layer.ID})
	}
	var err error
	if m.App, err = appOf(c, layers); err != nil {
		return nil, err
	}
	if err := m.annotateVariables(); err != nil { // before the labels: none of them counts as the variables
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if valid, err := types.SanitizeACIdentifier(strings.ToLower(key)); err == nil {
			m.annotate(valid, c.Labels[key])
		}
	}
	if c.StopSignal != "" {
		m.annotate(names.StopSignalAnnotation, c.StopSignal)
	}
	if !config.Created.IsZero() {
		m.annotate("created", config.Created.UTC().Format("2006-01-02T15:04:05Z"))
	}
	err = cmp.Or(m.annotateHealth(c.Healthcheck, c.Shell), m.annotateExec(c.Entrypoint, c.Cmd))
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// appOf returns the app of an image. layers have its users.
func appOf(c v1.Config, layers []*images.Image) (*app, error) {
	a := &app{
		Exec: append(append([]string{}, c.Entrypoint...), c.Cmd...), WorkingDirectory: workingDirectory(c),
		MountPoints: mountPoints(c.Volumes), Ports: ports(c.ExposedPorts),
	}
	for _, variable := range c.Env {
		if name, value, _ := strings.Cut(variable, "="); name != "" { // which no program can ask for
			a.set(name, value)
		}
	}
	if err := a.lookUpUser(c.User, layers); err != nil {
		return nil, fmt.Errorf("user %q: %w", c.User, err)
	}
	return a, nil
}

// workingDirectory returns the absolute path of the working directory, which Docker looks up from the root, or "" for
// none.
func workingDirectory(c v1.Config) string {
	if c.WorkingDir == "" {
		return ""
	}
	return path.Join("/", c.WorkingDir)
}

// annotateExec notes which part of exec is the entry point and which the command, as docker2aci
// does: arguments replace the command.
func (m *imageManifest) annotateExec(entrypoint, command []string) error {
	for name, words := range map[string][]string{
		names.EntrypointAnnotation: entrypoint,
		names.CommandAnnotation:    command,
	} {
		text, err := json.Marshal(append([]string{}, words...))
		if err != nil {
			return err
		}
		m.annotate(name, string(text))
	}
	slices.SortFunc(m.Annotations, func(a, b images.NameValue) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// annotateVariables moves the variables whose names appc does not allow from the app to an annotation.
func (m *imageManifest) annotateVariables() error {
	var others []string
	m.App.Environment = slices.DeleteFunc(m.App.Environment, func(v images.NameValue) bool {
		if plan.IsVariableName(v.Name) {
			return false
		}
		others = append(others, v.Name+"="+v.Value)
		return true
	})
	if len(others) == 0 {
		return nil
	}
	text, err := json.Marshal(others)
	m.annotate(names.EnvironmentAnnotation, string(text))
	return err
}

// annotateHealth notes the HEALTHCHECK of the container file. What it leaves out is the stager's default, which is
// Docker's. A check that Docker would not make, such as one without a command, is none.
func (m *imageManifest) annotateHealth(check *v1.HealthConfig, shell []string) error {
	if check == nil || len(check.Test) == 0 { // that of the base image, which has none
		return nil
	}
	words := check.Test[1:]
	switch kind := check.Test[0]; {
	case kind == "CMD-SHELL" && len(words) > 0:
		if len(shell) == 0 {
			shell = []string{"/bin/sh", "-c"}
		}
		words = slices.Concat(shell, words)
	case kind != "CMD":
		return nil
	}
	text, err := json.Marshal(words)
	if err != nil {
		return err
	}
	if plan.CheckHealth(names.HealthCommandAnnotation, string(text)) != nil {
		return nil
	}
	m.annotate(names.HealthCommandAnnotation, string(text))
	interval := check.Interval
	if interval > 0 {
		interval = max(interval, plan.MinHealthInterval)
	}
	for annotation, d := range map[string]time.Duration{
		names.HealthIntervalAnnotation:    interval,
		names.HealthTimeoutAnnotation:     check.Timeout,
		names.HealthStartPeriodAnnotation: check.StartPeriod,
	} {
		if d > 0 {
			m.annotate(annotation, d.String())
		}
	}
	if check.Retries > 0 {
		m.annotate(names.HealthRetriesAnnotation, strconv.Itoa(min(check.Retries, math.MaxInt32)))
	}
	return nil
}

// annotate adds an annotation unless there is one of that name.
func (m *imageManifest) annotate(name, value string) {
	if !slices.ContainsFunc(m.Annotations, func(a images.NameValue) bool { return a.Name == name }) {
		m.Annotations = append(m.Annotations, images.NameValue{Name: name, Value: value})
	}
}

// set sets a variable of the environment; a later one wins, as in Docker.
func (a *app) set(name, value string) {
	i := slices.IndexFunc(a.Environment, func(v images.NameValue) bool { return v.Name == name })
	if i < 0 {
		a.Environment = append(a.Environment, images.NameValue{Name: name, Value: value})
		return
	}
	a.Environment[i].Value = value
}

// labels returns the labels version, os and arch, the last in appc's words.
func labels(config *v1.ConfigFile, version string) []images.NameValue {
	var all []images.NameValue
	if version != "" {
		all = append(all, images.NameValue{Name: "version", Value: version})
	}
	arch := config.Architecture
	if other, known := map[string]string{"386": "i386", "arm64": "aarch64", "arm": "armv7l"}[arch]; known {
		arch = other
	}
	if config.OS != "" {
		all = append(all, images.NameValue{Name: "os", Value: config.OS})
	}
	if arch != "" && types.IsValidOSArch(map[types.ACIdentifier]string{"os": config.OS, "arch": arch},
		types.ValidOSArch) == nil {
		all = append(all, images.NameValue{Name: "arch", Value: arch})
	}
	return all
}

// mountPoints names volumes by their paths: /var/lib/data is var-lib-data. A volume inside another is part of it: the
// stager mounts nothing inside a volume, and a new volume has what the image has in the inner one.
func mountPoints(volumes map[string]struct{}) []mountPoint {
	var targets []string
	for target := range volumes {
		targets = append(targets, path.Join("/", target))
	}
	slices.Sort(targets)
	var points []mountPoint
	used := make(map[string]bool)
	for _, target := range targets {
		holds := func(p mountPoint) bool { return strings.HasPrefix(target+"/", p.Path+"/") }
		if target == "/" || slices.ContainsFunc(points, holds) {
			continue
		}
		name, err := types.SanitizeACName(strings.ToLower(strings.ReplaceAll(target[1:], "/", "-")))
		if err != nil {
			name = "volume"
		}
		for n := 2; used[name]; n++ {
			name = strings.TrimSuffix(name, "-"+strconv.Itoa(n-1)) + "-" + strconv.Itoa(n)
		}
		used[name] = true
		points = append(points, mountPoint{name, target})
	}
	return points
}

// ports converts PORT[-LAST][/PROTOCOL]. A port restricts nothing, so what names none is left out.
func ports(exposed map[string]struct{}) (all []port) {
	for _, text := range slices.Sorted(maps.Keys(exposed)) {
		numbers, protocol, found := strings.Cut(text, "/")
		if !found {
			protocol = "tcp"
		}
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, lastErr := strconv.ParseUint(last, 10, 16)
		protocol = strings.ToLower(protocol)
		if err != nil || lastErr != nil || from == 0 || to < from ||
			!slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			continue
		}
		all = append(all, port{
			Name: numbers + "-" + protocol, Protocol: protocol, Port: int(from),
			Count: int(to - from + 1),
		})
	}
	return all
}
