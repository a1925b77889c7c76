package plan

import (
	"path"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"
	"github.com/google/uuid"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// Metadata is what the metadata service publishes about a pod.
type Metadata struct {
	UUID        string // RFC 4122, canonical form
	Manifest    []byte // the reified pod manifest, JSON
	Annotations []Annotation
	Apps        []AppMetadata

	// Ports are TCP ports that the apps declare, which the service does not take.
	Ports []PortRange
}

// AppMetadata is what the metadata service publishes about one app.
type AppMetadata struct {
	Name             string // in the pod
	ImageID          string // in full
	ImageManifest    []byte // as the image has it, JSON
	ImageAnnotations []Annotation
	Annotations      []Annotation // of the app in the pod manifest
}

// Annotation is one of an image's, an app's or a pod's. Names are unique in a
// list. A nil list is published as null and an empty one as [], which appc's own
// acceptance program distinguishes.
type Annotation struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PortRange is Count ports from First on.
type PortRange struct{ First, Count uint }

// Has reports whether a port is in the range.
func (r PortRange) Has(port uint) bool { return port >= r.First && port-r.First < r.Count }

// PodUUID returns the pod's UUID: the one in the name of the pod's cgroup, if the daemon has
// named the cgroup so, else a new one. Users can then find the pod by the UUID. cgroups is the
// text of /proc/self/cgroup. With cgroup v2 only, the stager has moved to a
// leaf of the pod's cgroup (enter_leaf in pid1/enter.c).
func PodUUID(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		group := strings.TrimSpace(line)
		if strings.HasPrefix(group, "0::") {
			group = strings.TrimSuffix(group, names.LeafCgroup)
		}
		name := path.Base(group)
		if id, err := uuid.Parse(name); err == nil && id.Variant() == uuid.RFC4122 && id.String() == name {
			return name
		}
	}
	return uuid.NewString()
}

// WithMetadata returns a process's environment with the URL of the pod's metadata service, which overrides another;
// without a URL it returns env.
func WithMetadata(env []string, url string) []string {
	if url == "" {
		return env
	}
	own := func(v string) bool { return strings.HasPrefix(v, metadataVariable+"=") }
	return append(slices.DeleteFunc(slices.Clone(env), own), metadataVariable+"="+url)
}

// metadataOf returns the data that the metadata service serves for the pod of m, without the pod's UUID.
func metadataOf(m *manifest.Manifest, apps []manifest.App) Metadata {
	pod := Metadata{
		Manifest:    m.Pod.JSON,
		Annotations: annotationsOf(m.Pod.Annotations),
	}
	for _, port := range m.Pod.Ports {
		pod.Ports = append(pod.Ports, PortRange{First: port.HostPort, Count: 1})
		if port.PodPort != nil {
			pod.Ports = append(pod.Ports, portRange(*port.PodPort))
		}
	}
	for _, app := range apps {
		for _, port := range app.App.Ports {
			if !strings.EqualFold(port.Protocol, "tcp") {
				continue // the service's port is a TCP port
			}
			pod.Ports = append(pod.Ports, portRange(port))
		}
		pod.Apps = append(pod.Apps, AppMetadata{
			Name:             app.Name,
			ImageID:          app.ImageID,
			ImageManifest:    app.Image.JSON,
			ImageAnnotations: annotationsOf(app.Image.Annotations),
			Annotations:      annotationsOf(app.Runtime.Annotations),
		})
	}
	return pod
}

func portRange(port types.Port) PortRange {
	return PortRange{First: port.Port, Count: max(port.Count, 1)}
}

// annotationsOf converts annotations; nil stays nil, and an empty list stays empty.
func annotationsOf(list types.Annotations) []Annotation {
	if list == nil {
		return nil
	}
	out := make([]Annotation, len(list))
	for i, a := range list {
		out[i] = Annotation{Name: a.Name.String(), Value: a.Value}
	}
	return out
}
