package server

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kurma.io/stager/cri/records"
)

// pidNamespace opens the PID namespace that a container's stager is started in; nil is the server's. pids is the
// container's. The caller closes the file.
func (s *Server) pidNamespace(ctx context.Context, sandbox records.Sandbox, pids string) (*os.File, error) {
	switch pids {
	case "":
		return nil, nil
	case records.PodPIDs:
		pin, err := s.sandboxes.PIDs(s.records.SandboxDir(sandbox.ID))
		if err != nil {
			return nil, err
		}
		return os.Open(pin)
	default:
		return s.pidsOf(ctx, sandbox, pids)
	}
}

// pidsOf opens the PID namespace of a container's app. The container runs in the same sandbox.
func (s *Server) pidsOf(ctx context.Context, sandbox records.Sandbox, id string) (*os.File, error) {
	record, pod, err := s.running(id)
	if err == nil && record.SandboxID != sandbox.ID {
		err = fmt.Errorf("container %s is in another sandbox", id)
	}
	var file *os.File
	if err == nil {
		file, err = openPIDs(func() (int, error) {
			status, err := s.daemon.Status(ctx, pod)
			return status.Apps[record.App].PID, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("PID namespace of container %s: %w", id, err)
	}
	return file, nil
}

// openPIDs opens the PID namespace of an app by the app's number, 0 for one that has ended. An app that has its number
// afterwards had it all the time; otherwise the namespace may be that of any process, such as the host's.
func openPIDs(number func() (int, error)) (*os.File, error) {
	pid, err := number()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil, fmt.Errorf("the container is not running: %w", err)
	}
	switch now, err := number(); {
	case err != nil:
		return nil, errors.Join(err, file.Close())
	case now != pid:
		return nil, errors.Join(errors.New("the container is not running"), file.Close())
	}
	return file, nil
}
