package main

import (
	"errors"
	"path"
	"strings"

	"github.com/appc/spec/schema/types"
	"github.com/google/uuid"

	"kurma.io/stager/manifest"
	"kurma.io/stager/metadata"
	"kurma.io/stager/names"
)

// podUUID is the pod's UUID: the one that the daemon has named the pod's
// cgroup by, so that people find the pod by it, else a new one. cgroups is as
// /proc/self/cgroup has it: with cgroup v2 alone the stager's first process has gone
// to a leaf of the pod's cgroup (waiter.c, enter_leaf).
func podUUID(cgroups string) string {
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

// startMetadata starts the pod's metadata service, so that its URL is known to
// every process of the apps. Without a loopback interface the apps do without
// it, which is said in the log.
func (b *boot) startMetadata(id string) (err error) {
	b.metadata, err = metadata.Start(metadataOf(b.manifest, id), b.log)
	if errors.Is(err, metadata.ErrNoLoopback) {
		b.log.Warn("apps have no metadata service and no AC_METADATA_URL", "why", err)
		return nil
	}
	return err
}

// metadataURL is the value of AC_METADATA_URL, "" for none.
func (b *boot) metadataURL() string {
	if b.metadata == nil {
		return ""
	}
	return b.metadata.URL()
}

// metadataOf is what the metadata service tells of a pod.
func metadataOf(m *manifest.Manifest, id string) metadata.Pod {
	pod := metadata.Pod{
		UUID:        id,
		Manifest:    m.Pod.JSON,
		Annotations: annotationsOf(m.Pod.Annotations),
	}
	for _, port := range m.Pod.Ports {
		pod.Ports = append(pod.Ports, metadata.PortRange{First: port.HostPort, Count: 1})
		if port.PodPort != nil {
			pod.Ports = append(pod.Ports, portRange(*port.PodPort))
		}
	}
	for _, app := range m.Apps() {
		for _, port := range app.App.Ports {
			if !strings.EqualFold(port.Protocol, "tcp") {
				continue // the service's port is TCP's
			}
			pod.Ports = append(pod.Ports, portRange(port))
		}
		pod.Apps = append(pod.Apps, metadata.App{
			Name:             app.Name,
			ImageID:          app.ImageID,
			ImageManifest:    app.Image.JSON,
			ImageAnnotations: annotationsOf(app.Image.Annotations),
			Annotations:      annotationsOf(app.Runtime.Annotations),
		})
	}
	return pod
}

func portRange(port types.Port) metadata.PortRange {
	return metadata.PortRange{First: port.Port, Count: max(port.Count, 1)}
}

// annotationsOf keeps the difference between none and an empty list.
func annotationsOf(list types.Annotations) []metadata.Annotation {
	if list == nil {
		return nil
	}
	out := make([]metadata.Annotation, len(list))
	for i, a := range list {
		out[i] = metadata.Annotation{Name: a.Name.String(), Value: a.Value}
	}
	return out
}
