package server

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/pods"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// life is where a container is in its life.
type life struct {
	state             runtimeapi.ContainerState
	started, finished time.Time
	code              int32
	reason, message   string
}

const (
	startFailed = 128 // the exit code of a container that did not start
	notKnown    = 255 // the exit code of one that has ended nobody knows how
)

// lifeOf finds out where a container is.
func (s *Server) lifeOf(r records.Container) (life, error) {
	if r.StartError != "" {
		return notStarted(r, r.StartError), nil
	}
	pod, err := s.podOf(r)
	if err != nil {
		return life{}, err
	}
	switch {
	case r.Started.IsZero(): // its pod may have come and gone before its start can say so
		return life{state: runtimeapi.ContainerState_CONTAINER_CREATED}, nil
	case pod == nil:
		return lost(r, "the pod of the container is gone"), nil
	case pod.Damage != nil:
		return lost(r, pod.Damage.Error()), nil
	}
	return lifeOfPod(r, pod), nil
}

// lost is the life of a container of which only its record is left.
func lost(r records.Container, why string) life {
	started := cmp.Or(r.Started, r.Created)
	return life{
		state: runtimeapi.ContainerState_CONTAINER_EXITED, started: started, finished: started,
		code: notKnown, reason: "Unknown", message: why,
	}
}

func notStarted(r records.Container, why string) life {
	return life{
		state: runtimeapi.ContainerState_CONTAINER_EXITED, finished: cmp.Or(r.Failed, r.Created),
		code: startFailed, reason: "StartError", message: why,
	}
}

func lifeOfPod(r records.Container, pod *pods.Pod) life {
	started := cmp.Or(r.Started, pod.State.Created)
	switch pod.State.Phase {
	case pods.Starting:
		return life{state: runtimeapi.ContainerState_CONTAINER_CREATED}
	case pods.Running, pods.Stopping:
		return life{state: runtimeapi.ContainerState_CONTAINER_RUNNING, started: started}
	}
	l := life{state: runtimeapi.ContainerState_CONTAINER_EXITED, started: started, code: notKnown, reason: "Unknown"}
	l.finished = cmp.Or(pod.State.Ended, started)
	code, why := pod.Outcome()
	switch {
	case code == nil:
		return l
	case why == pods.OOMKilled:
		l.reason, l.message = "OOMKilled", pod.StagerFailed()
	case *code == 0:
		l.reason = "Completed"
	default:
		l.reason = "Error"
	}
	l.code = int32(*code)
	return l
}

// ContainerStatus implements the CRI.
func (s *Server) ContainerStatus(
	ctx context.Context, r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	record, err := s.records.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	status, err := s.containerStatus(record)
	if err != nil {
		return nil, err
	}
	response := &runtimeapi.ContainerStatusResponse{Status: status}
	if r.GetVerbose() {
		response.Info, err = s.containerInfo(ctx, record)
	}
	return response, err
}

func (s *Server) containerStatus(r records.Container) (*runtimeapi.ContainerStatus, error) {
	l, err := s.lifeOf(r)
	if err != nil {
		return nil, err
	}
	status := &runtimeapi.ContainerStatus{
		Id: r.ID, Metadata: containerMetadata(r), State: l.state,
		CreatedAt: r.Created.UnixNano(), StartedAt: nanoseconds(l.started), FinishedAt: nanoseconds(l.finished),
		ExitCode: l.code, Reason: l.reason, Message: l.message,
		Image: imageSpec(r), ImageRef: cmp.Or(r.ImageDigest, r.ImageID), ImageId: r.ImageID,
		Labels: r.Labels, Annotations: r.Annotations, LogPath: r.LogPath, StopSignal: translate.Signal(r.StopSignal),
	}
	return status, addRequested(status, r)
}

// addRequested adds what kubelet asked for.
func addRequested(status *runtimeapi.ContainerStatus, r records.Container) error {
	for _, text := range r.Mounts {
		m := new(runtimeapi.Mount)
		if err := decode(text, m); err != nil {
			return err
		}
		status.Mounts = append(status.Mounts, m)
	}
	if r.Resources != nil {
		status.Resources = &runtimeapi.ContainerResources{Linux: new(runtimeapi.LinuxContainerResources)}
		if err := decode(r.Resources, status.Resources.Linux); err != nil {
			return err
		}
	}
	if r.User != nil {
		status.User = &runtimeapi.ContainerUser{Linux: new(runtimeapi.LinuxContainerUser)}
		return decode(r.User, status.User.Linux)
	}
	return nil
}

// decode reads a part of a status, which another version of the server may have written. It reads none from nil.
func decode(text json.RawMessage, into proto.Message) error {
	if text == nil {
		return nil
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func containerMetadata(r records.Container) *runtimeapi.ContainerMetadata {
	return &runtimeapi.ContainerMetadata{Name: r.Name, Attempt: r.Attempt}
}

func imageSpec(r records.Container) *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: cmp.Or(r.ImageSpec, r.Image), UserSpecifiedImage: r.ImageSpec}
}

// statusesOf returns the statuses of a sandbox's containers.
func (s *Server) statusesOf(sandbox string) ([]*runtimeapi.ContainerStatus, error) {
	containers, err := s.containersOf(sandbox)
	if err != nil {
		return nil, err
	}
	var all []*runtimeapi.ContainerStatus
	for _, c := range containers {
		status, err := s.containerStatus(c)
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// ListContainers implements the CRI.
func (s *Server) ListContainers(
	_ context.Context, r *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	all, err := s.listContainers(r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: all}, err
}

// StreamContainers implements the CRI.
func (s *Server) StreamContainers(
	r *runtimeapi.StreamContainersRequest, stream runtimeapi.RuntimeService_StreamContainersServer,
) error {
	all, err := s.listContainers(r.GetFilter())
	return sendAll(all, err, func(part []*runtimeapi.Container) error {
		return stream.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

func (s *Server) listContainers(f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	all, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	var items []*runtimeapi.Container
	for _, r := range all {
		if !matches(f.GetId(), r.ID) || !matches(f.GetPodSandboxId(), r.SandboxID) ||
			!hasLabels(r.Labels, f.GetLabelSelector()) {
			continue
		}
		l, err := s.lifeOf(r)
		if err != nil {
			return nil, err
		}
		if f.GetState() != nil && f.GetState().GetState() != l.state {
			continue
		}
		items = append(items, listed(r, l))
	}
	return items, nil
}

func listed(r records.Container, l life) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: r.ID, PodSandboxId: r.SandboxID, Metadata: containerMetadata(r),
		Image: imageSpec(r), ImageRef: cmp.Or(r.ImageDigest, r.ImageID), ImageId: r.ImageID,
		State: l.state, CreatedAt: r.Created.UnixNano(), Labels: r.Labels, Annotations: r.Annotations,
	}
}
