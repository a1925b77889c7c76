package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/strictjson"

	"github.com/appc/spec/schema/types"
	"github.com/google/uuid"
)

const (
	// kurmaVersion is the version of Kurma whose daemon the launcher stands in for.
	kurmaVersion = "0.4.1"

	// maxID is the highest user or group ID.
	maxID = 1<<32 - 2

	// namespacesIsolator is the pod isolator that says which namespaces are the
	// host's: {"net": "host"}.
	namespacesIsolator = "os/linux/namespaces"

	// journalDir holds the sockets of journald, where the host has one.
	journalDir = "/run/systemd/journal"

	// stopTimeout is how long Kurma waits for a stager to stop.
	stopTimeout = 60 * time.Second
)

// plan decides all about a pod before anything is touched, and warns of what the pod
// asks for in vain.
func (c *cli) plan(store *images.Store, o runOptions) (pods.Plan, error) {
	stager, err := c.stagerImage(store)
	if err != nil {
		return pods.Plan{}, err
	}
	document, name, err := podDocument(store, o)
	if err != nil {
		return pods.Plan{}, err
	}
	if o.name != "" {
		name = o.name
	}
	m, layers, err := stagerManifest(store, document, name, c.config.DefaultStagerConfig)
	if err != nil {
		return pods.Plan{}, fmt.Errorf("pod %q: %w", name, err)
	}
	plan := pods.Plan{
		UUID:        uuid.NewString(),
		Name:        name,
		StagerImage: stager.ID,
		StagerRoot:  stager.Rootfs(),
		Exec:        stager.Manifest.App.Exec,
		Env:         stagerEnv(stager.Manifest.App),
		Layers:      layers,
		HostNetwork: wantsHostNetwork(m.Pod),
		Journal:     hostJournal(),
		StopTimeout: stopTimeout,
	}
	if !filepath.IsAbs(plan.Exec[0]) {
		return pods.Plan{}, fmt.Errorf("stager image %s: exec %q is not an absolute path", stager.Manifest.Name, plan.Exec[0])
	}
	var buf bytes.Buffer
	if err := m.Write(&buf); err != nil {
		return pods.Plan{}, err
	}
	plan.Manifest = buf.Bytes()
	if plan.Volumes, err = planVolumes(m.Pod); err != nil {
		return pods.Plan{}, fmt.Errorf("pod %q: %w", name, err)
	}
	plan.Apps = planApps(m)
	for _, port := range unreachable(m, plan.HostNetwork) {
		fmt.Fprintf(c.stderr, "launcher: warning: pod %q: port %q is not reachable from the host: nothing here forwards host port %d to it\n", name, port.Name, port.HostPort)
	}
	return plan, nil
}

// unreachable lists the pod's ports that are not on the host as it asks for: nothing
// here forwards them, so all but those that are there by themselves, as the
// pod's network is the host's and the numbers are the same.
func unreachable(m *manifest.Manifest, hostNetwork bool) []types.ExposedPort {
	numbers := make(map[types.ACName]uint)
	for _, app := range m.Apps() {
		for _, port := range app.App.Ports {
			numbers[port.Name] = port.Port
		}
	}
	var out []types.ExposedPort
	for _, port := range m.Pod.Ports {
		number := numbers[port.Name]
		if port.PodPort != nil {
			number = port.PodPort.Port
		}
		if !hostNetwork || number != port.HostPort {
			out = append(out, port)
		}
	}
	return out
}

// hostJournal is the host's folder of journald's sockets, "" where it has none.
func hostJournal() string {
	if _, err := os.Stat(filepath.Join(journalDir, "socket")); err != nil {
		return ""
	}
	return journalDir
}

// stagerManifest resolves the images of a pod's apps and gives the manifest
// for its stager, with the layers it names, each once.
func stagerManifest(store *images.Store, document []byte, name string, config json.RawMessage) (*manifest.Manifest, []pods.Layer, error) {
	pod, err := manifest.DecodePod(document)
	if err != nil {
		return nil, nil, err
	}
	m := &manifest.Manifest{
		KurmaVersion:  kurmaVersion,
		Name:          name,
		Pod:           pod,
		Images:        make(map[string]*manifest.Image),
		AppImageOrder: make(map[string][]string),
		StagerConfig:  config,
	}
	var layers []pods.Layer
	for _, app := range pod.Apps {
		top, err := store.Get(app.Image.ID.String())
		if err != nil {
			return nil, nil, fmt.Errorf("app %q: %w", app.Name, err)
		}
		order, err := store.Layers(top)
		if err != nil {
			return nil, nil, fmt.Errorf("app %q: %w", app.Name, err)
		}
		for _, image := range order {
			m.AppImageOrder[app.Name.String()] = append(m.AppImageOrder[app.Name.String()], image.ID)
			if m.Images[image.ID] != nil {
				continue
			}
			if m.Images[image.ID], err = manifest.DecodeImage(image.Manifest.Raw); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", image.ID, err)
			}
			layers = append(layers, pods.Layer{ID: image.ID, Dir: image.Rootfs()})
		}
	}
	return m, layers, m.Validate()
}

// stagerEnv is the stager's whole environment: its image's and HOME.
func stagerEnv(app *images.App) []string {
	env := []string{"HOME=/root"}
	for _, e := range app.Environment {
		if e.Name != "HOME" {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	return env
}

// wantsHostNetwork reads Kurma's isolator of the pod, of several the last, as
// the stager does.
func wantsHostNetwork(pod *manifest.Pod) bool {
	wants := false
	for _, isolator := range pod.Isolators {
		var namespaces map[string]string
		if isolator.Name == namespacesIsolator && json.Unmarshal(isolator.Value, &namespaces) == nil {
			wants = namespaces["net"] == "host"
		}
	}
	return wants
}

// planVolumes are those of the pod and those that apps have for themselves.
func planVolumes(pod *manifest.Pod) ([]pods.Volume, error) {
	var all []pods.Volume
	for _, v := range pod.Volumes {
		volume, err := planVolume(v)
		if err != nil {
			return nil, err
		}
		all = append(all, volume)
	}
	return planAppVolumes(pod, all)
}

func planVolume(v types.Volume) (pods.Volume, error) {
	volume := pods.Volume{
		Name:        v.Name.String(),
		Source:      v.Source,
		ReadOnly:    isSet(v.ReadOnly),
		SingleMount: v.Recursive != nil && !*v.Recursive,
	}
	var err error
	if v.Kind == "empty" {
		err = planEmpty(&volume, v.Mode, v.UID, v.GID)
	} else {
		err = checkSource(v.Source)
	}
	if err != nil {
		return volume, fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return volume, nil
}

// checkSource makes sure that a volume's source is there, and is what it looks
// like: appc wants no symbolic links in it (ace.md, Volume Setup). It is opened
// in the same way again when it is mounted.
func checkSource(path string) error {
	source, err := pods.OpenSource(path)
	if err != nil {
		return err
	}
	return source.Close()
}

// planEmpty takes appc's defaults, 0755 and 0:0, where the pod says nothing.
func planEmpty(volume *pods.Volume, mode *string, uid, gid *int) error {
	volume.Source, volume.Mode = "", 0o755
	if mode != nil {
		bits, err := strconv.ParseUint(*mode, 8, 12)
		if err != nil {
			return fmt.Errorf("mode %q is not an octal number of at most 7777", *mode)
		}
		volume.Mode = uint32(bits)
	}
	for _, id := range []struct {
		name     string
		from, to *int
	}{{"uid", uid, &volume.UID}, {"gid", gid, &volume.GID}} {
		if id.from == nil {
			continue
		}
		// chown(2) would make another ID of one with more bits.
		if *id.from < 0 || *id.from > maxID {
			return fmt.Errorf("%s %d is not within 0 to %d", id.name, *id.from, maxID)
		}
		*id.to = *id.from
	}
	return nil
}

// planApps takes down what `exec` wants to know of each app.
func planApps(m *manifest.Manifest) []pods.App {
	var all []pods.App
	for _, a := range m.Apps() {
		app := pods.App{
			Name:             a.Name,
			User:             a.App.User,
			Group:            a.App.Group,
			SupplementaryGID: a.App.SupplementaryGIDs,
			WorkingDirectory: a.App.WorkingDirectory,
		}
		for _, e := range a.App.Environment {
			app.Environment = append(app.Environment, pods.Environment{Name: e.Name, Value: e.Value})
		}
		all = append(all, app)
	}
	return all
}

// podDocument gives the pod manifest, every image named by its ID, and a name
// for the pod.
func podDocument(store *images.Store, o runOptions) (document []byte, name string, err error) {
	info, err := os.Stat(o.source)
	if strings.HasSuffix(o.source, ".json") || (err == nil && info.Mode().IsRegular()) {
		if len(o.args) > 0 {
			return nil, "", usageError{"run: arguments after -- are for an image's app, not for a pod manifest"}
		}
		document, err = readPod(store, o)
		return document, podName(strings.TrimSuffix(filepath.Base(o.source), ".json")), err
	}
	image, err := store.Find(o.source)
	if err != nil {
		return nil, "", err
	}
	name = appName(image.Manifest.Name)
	document, err = imagePod(image, name, o)
	return document, name, err
}

func readPod(store *images.Store, o runOptions) ([]byte, error) {
	data, err := os.ReadFile(o.source)
	if err != nil {
		return nil, fmt.Errorf("read pod manifest: %w", err)
	}
	if !utf8.Valid(data) { // JSON's decoder would put other characters in its paths
		return nil, fmt.Errorf("read pod manifest %s: it is not UTF-8", o.source)
	}
	pod, err := manifest.DecodePod(data)
	if err != nil {
		return nil, fmt.Errorf("read pod manifest %s: %w", o.source, err)
	}
	ids := make([]string, len(pod.Apps))
	for i, app := range pod.Apps {
		image, err := findRuntimeImage(store, app.Image)
		if err != nil {
			return nil, fmt.Errorf("pod manifest %s: app %q: %w", o.source, app.Name, err)
		}
		ids[i] = image.ID
	}
	return editPod(data, ids, o)
}

// appName makes an app's name of an image's: its last part, with what an app's
// name may not hold turned to dashes.
func appName(image string) string {
	base := strings.ToLower(image[strings.LastIndexByte(image, '/')+1:])
	name := strings.Trim(strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}, base), "-")
	if name == "" {
		return "app"
	}
	return name
}

// imagePod makes a pod of one app. Arguments are added to the image's exec.
func imagePod(image *images.Image, name string, o runOptions) ([]byte, error) {
	app := map[string]any{"name": name, "image": map[string]string{"id": image.ID}}
	if len(o.args) > 0 {
		section, err := withArguments(image, o.args)
		if err != nil {
			return nil, err
		}
		app["app"] = section
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

// withArguments is the image's app section with more arguments. What else it
// says stays as it is written there.
func withArguments(image *images.Image, args []string) (strictjson.Object, error) {
	var document struct {
		App strictjson.Object `json:"app"`
	}
	if err := json.Unmarshal(image.Manifest.Raw, &document); err != nil {
		return nil, err
	}
	if document.App == nil {
		return nil, errors.New("image " + image.Manifest.Name + " has no app to give arguments to")
	}
	err := document.App.Set("exec", slices.Concat(image.Manifest.App.Exec, args))
	return document.App, err
}
