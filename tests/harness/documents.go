package harness

import "slices"

// PodDoc is an appc pod manifest, with the fields that the tests need.
type PodDoc struct {
	Version     string      `json:"acVersion"`
	Kind        string      `json:"acKind"`
	Apps        []AppDoc    `json:"apps"`
	Volumes     []VolumeDoc `json:"volumes,omitempty"`
	Isolators   []any       `json:"isolators,omitempty"`
	Annotations []NameValue `json:"annotations,omitempty"`

	UserAnnotations map[string]string `json:"userAnnotations,omitempty"`
	UserLabels      map[string]string `json:"userLabels,omitempty"`
}

// AppDoc is an app of a pod manifest.
type AppDoc struct {
	Name     string      `json:"name"`
	Image    ImageRef    `json:"image"`
	App      *SectionDoc `json:"app,omitempty"`
	Mounts   []any       `json:"mounts,omitempty"` // mountDoc, ownMountDoc
	ReadOnly bool        `json:"readOnlyRootFS,omitempty"`

	Annotations []NameValue `json:"annotations,omitempty"`
}

// ImageRef names an app's image by its ID.
type ImageRef struct {
	ID string `json:"id"`
}

// NameValue is an annotation or a variable.
type NameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SectionDoc is the section "app" of an image or of a pod manifest's app.
type SectionDoc struct {
	Exec             []string     `json:"exec"`
	User             string       `json:"user"`
	Group            string       `json:"group"`
	SupplementaryGID []int        `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string       `json:"workingDirectory,omitempty"`
	Environment      []NameValue  `json:"environment,omitempty"`
	EventHandlers    []HandlerDoc `json:"eventHandlers,omitempty"`
	MountPoints      []any        `json:"mountPoints,omitempty"`
	Isolators        []any        `json:"isolators,omitempty"`

	UserAnnotations map[string]string `json:"userAnnotations,omitempty"`
	UserLabels      map[string]string `json:"userLabels,omitempty"`
}

// HandlerDoc is an event handler: "pre-start" or "post-stop".
type HandlerDoc struct {
	Name string   `json:"name"`
	Exec []string `json:"exec"`
}

// VolumeDoc is a volume of the kind "host" or "empty".
type VolumeDoc struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Source    string `json:"source,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
	Recursive *bool  `json:"recursive,omitempty"`
	Mode      string `json:"mode,omitempty"`
	UID       *int   `json:"uid,omitempty"`
	GID       *int   `json:"gid,omitempty"`
}

// MountDoc mounts a volume of the pod in an app.
type MountDoc struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// OwnMountDoc mounts a volume that is the app's own.
type OwnMountDoc struct {
	MountDoc
	Own VolumeDoc `json:"appVolume"`
}

// Isolator returns an isolator with a value of any type.
func Isolator(name string, value any) map[string]any {
	return map[string]any{"name": name, "value": value}
}

// Shell returns an app of the busybox image that runs a shell script as root.
func (s *Suite) Shell(name, script string) AppDoc { return s.Command(name, "/bin/sh", "-c", script) }

// Command returns an app of the busybox image that runs a command as root.
func (s *Suite) Command(name string, args ...string) AppDoc {
	return AppDoc{
		Name:  name,
		Image: ImageRef{s.IDs["busybox"]},
		App:   &SectionDoc{Exec: args, User: "0", Group: "0"},
	}
}

// PodOf returns the manifest of a pod with these apps.
func PodOf(apps ...AppDoc) PodDoc {
	return PodDoc{Version: "0.8.11", Kind: "PodManifest", Apps: apps}
}

// Annotated returns the app with an annotation added.
func (a AppDoc) Annotated(name, value string) AppDoc {
	a.Annotations = append(a.Annotations, NameValue{name, value})
	return a
}

// HostVolume adds a volume of the host to the pod and mounts it in all of its apps.
func (d PodDoc) HostVolume(name, source, target string) PodDoc {
	d.Volumes = append(slices.Clone(d.Volumes), VolumeDoc{Name: name, Kind: "host", Source: source})
	d.Apps = slices.Clone(d.Apps)
	for i := range d.Apps {
		d.Apps[i].Mounts = append(slices.Clone(d.Apps[i].Mounts), MountDoc{name, target})
	}
	return d
}
