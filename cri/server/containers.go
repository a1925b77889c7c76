package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/crilog"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer implements the CRI.
func (s *Server) StartContainer(
	ctx context.Context, r *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	record, err := s.records.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	// A sandbox that stops finds the container running, or not started.
	leaveSandbox, err := s.locks.take(ctx, record.SandboxID)
	if err != nil {
		return nil, err
	}
	defer leaveSandbox()
	release, err := s.locks.take(ctx, record.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	if record, err = s.records.Container(record.ID); err != nil {
		return nil, err
	}
	if record.StartTried() {
		return nil, fmt.Errorf("container %s was already started", record.ID)
	}
	err = s.start(ctx, &record)
	s.removeMounts(record.ID)
	if err != nil {
		record.StartError, record.Failed = oneLine(err), time.Now()
		return nil, errors.Join(err, s.records.WriteContainer(record))
	}
	s.tally.start(record.Attempt)
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, record.ID, record.SandboxID))
	return &runtimeapi.StartContainerResponse{}, nil
}

// start starts the container's pod. The record has the pod's UUID before the pod starts: a server that was killed
// leaves no pod that none knows.
func (s *Server) start(ctx context.Context, r *records.Container) (err error) {
	sandbox, err := s.readySandbox(r.SandboxID)
	if err != nil {
		return err
	}
	pids, err := s.pidNamespace(ctx, sandbox, r.PIDs)
	if err != nil {
		return err
	}
	defer pids.Close() // which the start opens again by its path
	launch, err := s.launch(ctx, sandbox, *r, pids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launch.Close()) }()
	r.PodUUID = launch.Pod().Plan.UUID
	if err := errors.Join(s.records.WriteContainer(*r), limitBeforeStart(launch.Pod(), *r)); err != nil {
		return err
	}
	attendant, err := launch.StartUnattended(ctx, starter(), func() error {
		return sandboxes.Enter(s.records.SandboxDir(sandbox.ID), sandbox)
	})
	if err != nil {
		return err
	}
	go s.attend(attendant, launch.Pod())
	if err = limitStarted(launch.Pod(), *r); err == nil {
		r.Started = time.Now() // see findStrayPods
		err = s.records.WriteContainer(*r)
	}
	if err != nil {
		return errors.Join(err, s.killStarted(ctx, launch.Pod()))
	}
	return nil
}

// killStarted ends a pod whose container counts as not started.
func (s *Server) killStarted(ctx context.Context, pod *pods.Pod) error {
	return s.pods.End(context.WithoutCancel(ctx), pod)
}

// launch makes the container's pod. The file pids is that of pidNamespace.
func (s *Server) launch(
	ctx context.Context, sandbox records.Sandbox, r records.Container, pids *os.File,
) (launch *daemon.Launch, err error) {
	pod, err := s.records.Pod(r.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.openDaemon(pod)
	if err != nil {
		return nil, err
	}
	options := podOptions(r, pod, sandbox.Cgroup)
	if pids != nil {
		options.PIDNamespace = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pids.Fd())
	}
	launch, _, err = d.Create(ctx, options)
	return launch, err
}

// StopContainer implements the CRI.
func (s *Server) StopContainer(
	ctx context.Context, r *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	err := s.stopContainer(ctx, r.GetContainerId(), time.Duration(min(r.GetTimeout(), longestGrace))*time.Second)
	return &runtimeapi.StopContainerResponse{}, ignoreMissing(err)
}

// longestGrace is the longest grace period that a time.Duration holds, in seconds.
const longestGrace = int64(math.MaxInt64 / time.Second)

// stopContainer asks the container's app to end, and kills it with its pod after the grace period. If ctx ends before,
// because kubelet or this server is started again, the app keeps what is left of its time: kubelet asks again.
func (s *Server) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	record, err := s.containerToEnd(id)
	if err != nil {
		return err
	}
	pod, err := s.podOf(record)
	if err == nil && pod != nil && pod.Damage != nil {
		return s.pods.Remove(ctx, pod, true) // its state does not say whether it has ended
	}
	if err != nil || pod == nil || pod.Ended() {
		return err
	}
	if grace > 0 {
		s.askToEnd(ctx, pod, record, grace)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stop container %s: %w", id, context.Cause(ctx))
	}
	if err := s.pods.End(ctx, pod); err != nil && !errors.Is(err, pods.ErrNotFound) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// askAgain is the pause before a stager is asked again, which may not have started yet.
const askAgain = 100 * time.Millisecond

// askToEnd signals the app and waits for the pod's end, at most for the grace period. A stager that does not answer is
// asked again, and is left the same time.
func (s *Server) askToEnd(ctx context.Context, pod *pods.Pod, r records.Container, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for ctx.Err() == nil {
		err := s.daemon.Signal(ctx, pod, r.App, syscall.Signal(r.StopSignal))
		if err == nil || pod.Ends(ctx, time.Second) { // a pod that is ending cannot be called
			break
		}
		slog.Warn("app is not signalled", "container", r.ID, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
	_ = pod.AwaitEnd(ctx)
}

// RemoveContainer implements the CRI.
func (s *Server) RemoveContainer(
	ctx context.Context, r *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	err := s.removeContainer(ctx, r.GetContainerId())
	if errors.Is(err, records.ErrNotFound) {
		err = s.records.RemoveContainer(r.GetContainerId()) // whose folder an error may have left
	}
	return &runtimeapi.RemoveContainerResponse{}, err
}

func (s *Server) removeContainer(ctx context.Context, id string) error {
	if err := s.stopContainer(ctx, id, 0); err != nil {
		return err
	}
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	record, err := s.containerToEnd(id)
	if err != nil {
		return err
	}
	pod, err := s.podOf(record)
	if err != nil {
		return err
	}
	if err := sandboxes.Decompose(s.composedDir(id)); err != nil {
		return err
	}
	if err := s.records.HideContainer(id); err != nil {
		return err
	}
	if pod != nil {
		if err := s.pods.Remove(ctx, pod, true); err != nil {
			return errors.Join(err, s.records.ShowContainer(id)) // kubelet repeats the removal of what is listed
		}
	}
	if err := s.records.RemoveContainer(id); err != nil {
		return err
	}
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, id, record.SandboxID))
	return nil
}

// containerToEnd returns the record of a container that is stopped or removed. Instead of a damaged record it returns
// one with the container's pod, found by its name, the container's ID.
func (s *Server) containerToEnd(id string) (records.Container, error) {
	record, err := s.records.ContainerToRemove(id)
	if !errors.Is(err, records.ErrDamaged) {
		return record, err
	}
	record = records.Container{ID: id}
	all, err := s.pods.List()
	for _, pod := range all {
		if pod.Plan.Name == id {
			record.PodUUID = pod.Plan.UUID
		}
	}
	return record, err
}

// podOf returns the pod of a container, with Damage if its state cannot be read; nil for a container that was not
// started, or whose pod is gone because it did not start.
func (s *Server) podOf(r records.Container) (*pods.Pod, error) {
	if r.PodUUID == "" {
		return nil, nil
	}
	pod, err := s.pods.Get(r.PodUUID)
	if err == nil {
		return pod, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if !jsonfile.IsDamage(err) {
		return nil, err
	}
	all, err := s.pods.List()
	i := slices.IndexFunc(all, func(p *pods.Pod) bool { return p.Plan.UUID == r.PodUUID })
	if i < 0 {
		return nil, err
	}
	return all[i], nil
}

// ReopenContainerLog implements the CRI: it makes the new file, in which the stager continues the log.
func (s *Server) ReopenContainerLog(
	_ context.Context, r *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	record, _, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if record.LogPath == "" {
		return &runtimeapi.ReopenContainerLogResponse{}, nil
	}
	file, err := crilog.OpenFile(record.LogPath, slog.Default()) // as the stager opens it
	if err != nil {
		return nil, fmt.Errorf("reopen log of container %s: %w", record.ID, err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, file.Close()
}

// running returns a container that runs, and its pod.
func (s *Server) running(id string) (records.Container, *pods.Pod, error) {
	record, err := s.records.Container(id)
	if err != nil {
		return record, nil, err
	}
	pod, err := s.podOf(record)
	if err != nil {
		return record, nil, err
	}
	if !runs(pod) {
		return record, nil, fmt.Errorf("container %s is not running", id)
	}
	return record, pod, nil
}

// runningApp returns the pod of a container that runs, and the pod's app.
func (s *Server) runningApp(id string) (*pods.Pod, pods.App, error) {
	record, pod, err := s.running(id)
	if err != nil {
		return nil, pods.App{}, err
	}
	app, err := daemon.FindApp(pod, record.App)
	return pod, app, err
}

// runs reports whether a container's pod is there and up. One that has been asked to stop is, until it has ended.
func runs(pod *pods.Pod) bool {
	return pod != nil && pod.Damage == nil && (pod.State.Phase == pods.Running || pod.State.Phase == pods.Stopping)
}

// containersOf returns the containers of a sandbox.
func (s *Server) containersOf(sandbox string) ([]records.Container, error) {
	all, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	var some []records.Container
	for _, c := range all {
		if c.SandboxID == sandbox {
			some = append(some, c)
		}
	}
	return some, nil
}
