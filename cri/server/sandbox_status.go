package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/translate"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ignoreMissing is for calls that succeed for an ID that nobody knows.
func ignoreMissing(err error) error {
	if errors.Is(err, records.ErrNotFound) {
		return nil
	}
	return err
}

func sandboxMetadata(r records.Sandbox) *runtimeapi.PodSandboxMetadata {
	return &runtimeapi.PodSandboxMetadata{Name: r.Name, Uid: r.UID, Namespace: r.Namespace, Attempt: r.Attempt}
}

// sandboxState is READY for a sandbox with its namespaces.
func (s *Server) sandboxState(r records.Sandbox) runtimeapi.PodSandboxState {
	if r.Phase == records.Ready && sandboxes.IsAlive(s.records.SandboxDir(r.ID), r) {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// readySandbox returns the record of a sandbox that is ready.
func (s *Server) readySandbox(id string) (records.Sandbox, error) {
	r, err := s.records.Sandbox(id)
	if err == nil && s.sandboxState(r) != runtimeapi.PodSandboxState_SANDBOX_READY {
		err = fmt.Errorf("sandbox %s is not ready", id)
	}
	return r, err
}

// PodSandboxStatus implements the CRI.
func (s *Server) PodSandboxStatus(
	ctx context.Context, r *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	record, err := s.records.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	statuses, err := s.statusesOf(record.ID)
	if err != nil {
		return nil, err
	}
	response := &runtimeapi.PodSandboxStatusResponse{
		Status: s.sandboxStatus(record), ContainersStatuses: statuses, Timestamp: time.Now().UnixNano(),
	}
	if r.GetVerbose() {
		response.Info, err = s.sandboxInfo(ctx, record)
	}
	return response, err
}

func (s *Server) sandboxStatus(r records.Sandbox) *runtimeapi.PodSandboxStatus {
	network := &runtimeapi.PodSandboxNetworkStatus{}
	for i, ip := range r.IPs {
		if i == 0 {
			network.Ip = ip
			continue
		}
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return &runtimeapi.PodSandboxStatus{
		Id: r.ID, Metadata: sandboxMetadata(r), State: s.sandboxState(r), CreatedAt: r.Created.UnixNano(), Network: network,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode(r.NetworkMode),
			Pid:     runtimeapi.NamespaceMode(r.PIDMode),
			Ipc:     runtimeapi.NamespaceMode(r.IPCMode),

			UsernsOptions: translate.UsernsOptions(r.Users),
		}}},
		Labels: r.Labels, Annotations: r.Annotations, RuntimeHandler: r.Handler,
	}
}

// ListPodSandbox implements the CRI.
func (s *Server) ListPodSandbox(
	_ context.Context, r *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.listSandboxes(r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, err
}

// StreamPodSandboxes implements the CRI.
func (s *Server) StreamPodSandboxes(
	r *runtimeapi.StreamPodSandboxesRequest, stream runtimeapi.RuntimeService_StreamPodSandboxesServer,
) error {
	items, err := s.listSandboxes(r.GetFilter())
	return sendAll(items, err, func(part []*runtimeapi.PodSandbox) error {
		return stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (s *Server) listSandboxes(f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	all, err := s.records.Sandboxes()
	if err != nil {
		return nil, err
	}
	var items []*runtimeapi.PodSandbox
	for _, r := range all {
		if r.Phase == records.Making || !matches(f.GetId(), r.ID) || !hasLabels(r.Labels, f.GetLabelSelector()) {
			continue
		}
		state := s.sandboxState(r)
		if f.GetState() != nil && f.GetState().GetState() != state {
			continue
		}
		items = append(items, &runtimeapi.PodSandbox{
			Id: r.ID, Metadata: sandboxMetadata(r), State: state, CreatedAt: r.Created.UnixNano(),
			Labels: r.Labels, Annotations: r.Annotations, RuntimeHandler: r.Handler,
		})
	}
	return items, nil
}

// matches reports whether a filter's ID, "" for any or the start of one, is that of a record.
func matches(asked, have string) bool { return len(asked) <= len(have) && have[:len(asked)] == asked }

func hasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if text, ok := have[key]; !ok || text != value {
			return false
		}
	}
	return true
}
