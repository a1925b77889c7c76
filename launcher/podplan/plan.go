// Package podplan builds a pod's manifest and plan before anything is touched. A pod manifest
// or an image comes in, with what a person asks for beside it; a pods.Plan
// comes out. The package reads images and changes nothing.
package podplan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	decision "kurma.io/stager/plan"

	"github.com/appc/spec/schema/types"
	"github.com/google/uuid"
)

const (
	// kurmaVersion is the version of the Kurma daemon that the launcher stands in for.
	kurmaVersion = "0.4.1"

	// stopTimeout is how long Kurma waits for a stager to stop.
	stopTimeout = 60 * time.Second
	// stopMargin is how much longer than the grace period of its apps a stager may take at least.
	stopMargin = 50 * time.Second
)

// Images looks up images; *images.Catalog is one. Each error names the image
// that is missing or damaged.
type Images interface {
	// Find returns the image that a person means: an ID, the start of one, or NAME[:VERSION].
	Find(ref string) (*images.Image, error)
	// FindLabelled returns the latest image with the name and all of the labels.
	FindLabelled(name string, labels types.Labels) (*images.Image, error)
	// Get returns the image with that whole ID.
	Get(id string) (*images.Image, error)
	// Layers returns the image and all images that it depends on, the top one first.
	Layers(top *images.Image) ([]*images.Image, error)
}

// Volumes finds named volumes; *volumes.Store is one.
type Volumes interface {
	// Path returns the folder of a volume's files, whether the volume exists or not.
	Path(name string) string
	// NameOf returns the name of the volume with these files; false for any other path.
	NameOf(path string) (name string, ok bool)
}

// Planner plans pods. Its fields are only read, so that it may be used by
// several goroutines if its Images may.
type Planner struct {
	Images Images
	// Obtained maps references of a pod manifest to the IDs of the images that they mean. Images.Find finds the images of
	// all other references.
	Obtained map[string]string
	// Stager is the image of the stager, which the caller trusts. It has an app with an exec.
	Stager *images.Image
	// StagerConfig becomes the stagerConfig of every pod; nil for none.
	StagerConfig json.RawMessage
	// CheckSource reports why a path of the host cannot be a volume, or nil.
	CheckSource func(path string) error
	// Volumes are the named volumes, which are not made; nil for none.
	Volumes Volumes
	// Reachable reports whether others on the host can execute programs at or below a path that can be a volume. nil for
	// no warnings of it.
	Reachable func(path string) bool
	// Journal is the host's folder of journald's sockets, "" if it has none.
	Journal string
	// Networks are the networks that pods can be connected to.
	Networks []networks.Network
	// UUID is the pod's; "" for a new one.
	UUID string
	// Taken reports whether a pod has a name already: a name that is made of the manifest's file or the image gets a
	// number then. nil for none.
	Taken func(name string) bool
}

// Options is what a person asks for beside a pod manifest or an image.
type Options struct {
	Hostname string // the pod's hostname, that plan.CheckHostname accepts; "" for the manifest's or the name
	// the pod's name, for which IsName holds; "" for one made from the manifest's file or the image
	Name        string
	Labels      map[string]string // beside the manifest's userLabels
	Volumes     map[string]string // paths of the host by the names of volumes or mount points
	Mounts      []Mount           // paths of the host at paths of every app
	HostVolumes HostVolumes       // which volumes are mounted in other ways
	App         AppOptions        // of FromImage: for its app
	Remove      bool              // the pod is deleted when it ends
	ExitPolicy  string            // the stager's "exitPolicy" for this pod; "" for the configuration's
	DefaultExit string            // the "exitPolicy" for this pod if neither ExitPolicy nor the configuration has one
	Restart     string            // the stager's "restart" for this pod; "" for the configuration's
	GracePeriod string            // the stager's "gracePeriod" for this pod; "" for the configuration's
	HostNetwork bool              // the pod uses the host's network, whatever its manifest says
	NoNetwork   bool              // the pod has loopback alone
	Networks    []networks.Request
	AddHosts    []pods.Host
	NameServers []string // addresses, in place of those of the networks, of which the pod has at least one
	// ports beside those of the manifest; an error if no network of the pod publishes them
	Publish []networks.PortMapping
}

// HostVolumes are the names of those host volumes of the pod that are mounted otherwise than appc can say.
type HostVolumes struct {
	// Shared are those whose mounts stay in the peer groups of the host's (mount_namespaces(7)): what the pod mounts there
	// appears on the host.
	Shared []string
	// ReadOnlyTop are volumes that are read-only, while mounts below them are as on the host.
	ReadOnlyTop []string
}

// FromManifest plans the pod of a pod manifest. File is the manifest's path, for
// the pod's name and for errors. Each warning is one line about a
// request in the manifest that has no effect. An error also comes with warnings.
func (p *Planner) FromManifest(file string, text []byte, o Options) (plan pods.Plan, warnings []string, err error) {
	d, err := p.readDocument(file, text)
	unknown := unknownWarnings(filepath.Base(file), d.unknown)
	if err != nil {
		return pods.Plan{}, unknown, err
	}
	plan, warnings, err = p.plan(d, fileName(file), o)
	return plan, append(unknown, warnings...), err
}

// FromImage plans a pod of one app. Arguments are added to the image's exec. Ref
// and warnings are as for Images.Find and FromManifest.
func (p *Planner) FromImage(ref string, args []string, o Options) (plan pods.Plan, warnings []string, err error) {
	image, err := p.Images.Find(ref)
	if err != nil {
		return pods.Plan{}, nil, err
	}
	name := appName(image.Manifest.Name)
	d, err := imagePod(image, name, args, o.App)
	if err == nil {
		err = p.takeOwnGroups(d.pod.Apps[0].App, image, o.App)
	}
	if err == nil {
		err = d.addImageVolumes(image, o)
	}
	if err != nil {
		return pods.Plan{}, nil, err
	}
	return p.plan(d, podName(name), o)
}

// plan plans the pod of a document in which every image has its ID. Name is the
// pod's name unless the options have one.
func (p *Planner) plan(d document, name string, o Options) (pods.Plan, []string, error) {
	if o.Name != "" {
		name = o.Name
	} else if p.Taken != nil {
		name = freeName(name, p.Taken)
	}
	m, layers, err := p.editedManifest(d, name, o)
	if err != nil {
		return pods.Plan{}, nil, err
	}
	plan, err := p.unconnected(m, layers, o.HostVolumes)
	if err != nil {
		return pods.Plan{}, nil, err
	}
	plan.HostNetwork, plan.Remove = o.HostNetwork || d.hasHostNetwork(), o.Remove
	plan.Options = o.runOptions()
	published, err := p.connect(&plan, m, o)
	if err != nil {
		return pods.Plan{}, nil, fmt.Errorf("pod %q: %w", name, err)
	}
	plan.AddedHosts = o.AddHosts
	if len(plan.Networks)+len(plan.AddedHosts) > 0 {
		if err := p.addHosts(&d, &plan, m); err != nil {
			return pods.Plan{}, nil, fmt.Errorf("pod %q: %w", name, err)
		}
	}
	var warnings []string
	for _, text := range d.around {
		warnings = append(warnings, fmt.Sprintf("pod %q: %s", name, text))
	}
	warnings = append(warnings, p.reachableWarnings(m, plan)...)
	if !published {
		warnings = append(warnings, portWarnings(m, plan)...)
	}
	return plan, warnings, nil
}

// editedManifest puts the options into the document, and returns the manifest for the stager and its layers.
func (p *Planner) editedManifest(d document, name string, o Options) (*manifest.Manifest, []pods.Layer, error) {
	config, err := stagerConfig(p.StagerConfig, o)
	if err != nil {
		return nil, nil, err
	}
	own := d.volumeNames()
	if o.Mounts, err = p.namedMounts(o.Mounts); err == nil {
		err = p.checkMounts(o.Mounts)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pod %q: %w", name, err)
	}
	if err := d.edit(o); err != nil {
		return nil, nil, err
	}
	m, layers, err := p.stagerManifest(d, name, config)
	if err == nil {
		err = decision.CheckMounts(m) // before the volumes are looked at, or made
	}
	if err == nil {
		err = checkUsed(m, own, o.Volumes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pod %q: %w", name, err)
	}
	return m, layers, nil
}

// unconnected returns the plan of the manifest's pod, in which nothing is decided about networks.
func (p *Planner) unconnected(m *manifest.Manifest, layers []pods.Layer, host HostVolumes) (pods.Plan, error) {
	var text bytes.Buffer
	if err := m.Write(&text); err != nil {
		return pods.Plan{}, err
	}
	volumes, err := p.volumes(m.Pod, host)
	if err != nil {
		return pods.Plan{}, fmt.Errorf("pod %q: %w", m.Name, err)
	}
	plan := pods.Plan{
		UUID:        cmp.Or(p.UUID, uuid.NewString()),
		Name:        m.Name,
		Manifest:    text.Bytes(),
		Layers:      layers,
		Volumes:     volumes,
		Journal:     p.Journal,
		Apps:        apps(m),
		Labels:      m.Pod.UserLabels,
		StopTimeout: timeToStop(m.StagerConfig),
	}
	err = p.planStager(&plan)
	return plan, err
}

// planStager sets what the stager's image decides.
func (p *Planner) planStager(plan *pods.Plan) (err error) {
	stager := p.Stager.Manifest
	if !filepath.IsAbs(stager.App.Exec[0]) {
		return fmt.Errorf("stager image %q: exec %q is not an absolute path", stager.Name, stager.App.Exec[0])
	}
	plan.StagerImage, plan.StagerRoot = p.Stager.ID, p.Stager.Rootfs()
	plan.Exec, plan.Env = stager.App.Exec, stagerEnv(stager.App)
	if plan.LogDir, err = annotatedPath(stager, names.LogDirAnnotation); err != nil {
		return err
	}
	plan.EventsFile, err = annotatedPath(stager, names.EventsAnnotation)
	return err
}

// annotatedPath returns the path in the stager's root that its image names in an annotation, "" for none.
func annotatedPath(stager *images.Manifest, annotation string) (string, error) {
	path := stager.Annotations[annotation]
	if path != "" && (!filepath.IsAbs(path) || path == "/" || filepath.Clean(path) != path) {
		return "", fmt.Errorf("stager image %q: annotation %s: %q is not an absolute path below /", stager.Name, annotation,
			path)
	}
	return path, nil
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

// apps returns what `exec` needs to know about each app.
func apps(m *manifest.Manifest) []pods.App {
	var all []pods.App
	for _, a := range m.Apps() {
		app := pods.App{
			Name:             a.Name,
			User:             a.App.User,
			Group:            a.App.Group,
			SupplementaryGID: a.App.SupplementaryGIDs,
			WorkingDirectory: a.App.WorkingDirectory,
		}
		tty, _ := a.Runtime.Annotations.Get(names.TTYAnnotation)
		app.TTY = tty != "" && tty != "false"
		all = append(all, app)
	}
	return all
}
