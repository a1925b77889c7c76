package server

import (
	"context"
	"fmt"

	"kurma.io/stager/cri/records"
)

// pidNamespace returns the file of the PID namespace that a container's stager is started in, "" for the server's. pids
// is the container's.
func (s *Server) pidNamespace(ctx context.Context, sandbox records.Sandbox, pids string) (string, error) {
	switch pids {
	case "":
		return "", nil
	case records.PodPIDs:
		return s.sandboxes.PIDs(s.records.SandboxDir(sandbox.ID))
	default:
		return s.pidsOf(ctx, sandbox, pids)
	}
}

// pidsOf returns the file of the PID namespace of a container's app. The container runs in the same sandbox.
func (s *Server) pidsOf(ctx context.Context, sandbox records.Sandbox, id string) (string, error) {
	record, pod, err := s.running(id)
	if err == nil && record.SandboxID != sandbox.ID {
		err = fmt.Errorf("container %s is in another sandbox", id)
	}
	if err != nil {
		return "", fmt.Errorf("PID namespace of container: %w", err)
	}
	status, err := s.daemon.Status(ctx, pod)
	if err != nil {
		return "", fmt.Errorf("PID namespace of container: %w", err)
	}
	app := status.Apps[record.App]
	if app.PID == 0 {
		return "", fmt.Errorf("PID namespace of container: container %s is not running", id)
	}
	return fmt.Sprintf("/proc/%d/ns/pid", app.PID), nil
}
