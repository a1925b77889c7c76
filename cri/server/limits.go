package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// applyLimits writes the limits for which the stager has no isolators into the cgroup of a container's app.
func applyLimits(pod *pods.Pod, app string, l records.Limits) error {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return err
	}
	return applySettings(group, app, l.Settings())
}

// applySettings writes each text into its file of the app's cgroup, in the hierarchy that has the file.
func applySettings(group *cgroups.Group, app string, all []records.Setting) error {
	for _, s := range all {
		if err := applySetting(group, filepath.Join(names.AppsCgroup, app), s); err != nil {
			return fmt.Errorf("limit container: %w", err)
		}
	}
	return nil
}

func applySetting(group *cgroups.Group, below string, s records.Setting) error {
	for _, h := range group.Hierarchies {
		file, err := os.OpenFile(filepath.Join(group.Dir(h), below, s.File), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(s.Text)
		return errors.Join(err, file.Close())
	}
	return fmt.Errorf("no cgroup has %s", s.File)
}

// UpdateContainerResources implements the CRI, for a container that runs.
func (s *Server) UpdateContainerResources(
	_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	defer s.locks.take(r.GetContainerId())()
	record, pod, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	changes, err := translate.Changes(r.GetLinux(), isUnified(group))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if err := applySettings(group, record.App, changes); err != nil {
		return nil, err
	}
	if record.Resources, err = mergeResources(record.Resources, r.GetLinux()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.records.WriteContainer(record)
}

// mergeResources returns the recorded resources, overridden by the changes.
func mergeResources(recorded json.RawMessage, changes *runtimeapi.LinuxContainerResources) (json.RawMessage, error) {
	now := new(runtimeapi.LinuxContainerResources)
	if recorded != nil {
		if err := decode(recorded, now); err != nil {
			return nil, err
		}
	}
	proto.Merge(now, changes)
	return encode(now), nil
}

func isUnified(group *cgroups.Group) bool {
	return len(group.Hierarchies) == 1 && group.Hierarchies[0].V2
}

// UpdatePodSandboxResources implements the CRI. The pod's limits are those of kubelet's own cgroup.
func (s *Server) UpdatePodSandboxResources(
	context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
