package records

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"kurma.io/stager/launcher/jsonfile"
)

// Pod is how a container's pod is started. It is beside the container's record: it may have many MB, and every list
// reads all records.
type Pod struct {
	Manifest     json.RawMessage `json:"manifest"` // appc's pod manifest
	StagerConfig json.RawMessage `json:"stagerConfig"`
}

// Pod returns how the pod of a container is started.
func (s *Store) Pod(id string) (p Pod, err error) {
	if err := jsonfile.Read(filepath.Join(s.containerDir(id), "pod.json"), &p); err != nil {
		return p, fmt.Errorf("read pod of container: %w", err)
	}
	return p, nil
}

// WritePod writes how the pod of a container is started, before the container's record: RemoveStray removes it if that
// is not written.
func (s *Store) WritePod(id string, p Pod) error { return write(s.containerDir(id), "pod", p) }
