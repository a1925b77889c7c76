package server

import (
	"context"
	"encoding/json"
	"fmt"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
)

// What crictl inspect, inspectp, inspecti and info print beside a status: the facts for which scripts look, under the
// keys that containerd and CRI-O have for them.

// containerInfo is about a container.
type containerInfo struct {
	SandboxID string `json:"sandboxID"`
	PID       int    `json:"pid"` // of the app, in the server's PID namespace; 0 unless it runs
}

// sandboxInfo is about a sandbox, which has no process of its own.
type sandboxInfo struct {
	PID         int         `json:"pid"` // of a container's app that runs in the sandbox; 0 for none
	RuntimeSpec runtimeSpec `json:"runtimeSpec"`
}

// runtimeSpec is the part of an OCI configuration that says where the namespaces are.
type runtimeSpec struct {
	Linux struct {
		Namespaces []namespace `json:"namespaces"`
	} `json:"linux"`
}

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// infoOf returns the value of a verbose answer: each part in JSON.
func infoOf(parts map[string]any) (map[string]string, error) {
	info := map[string]string{}
	for key, part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", key, err)
		}
		info[key] = string(text)
	}
	return info, nil
}

func (s *Server) containerInfo(ctx context.Context, r records.Container) (map[string]string, error) {
	return infoOf(map[string]any{"record": r, "info": containerInfo{r.SandboxID, s.pidOf(ctx, r)}})
}

func (s *Server) sandboxInfo(ctx context.Context, r records.Sandbox) (map[string]string, error) {
	containers, err := s.containersOf(r.ID)
	if err != nil {
		return nil, err
	}
	var info sandboxInfo
	for _, c := range containers {
		if info.PID == 0 {
			info.PID = s.pidOf(ctx, c)
		}
	}
	info.RuntimeSpec.Linux.Namespaces = []namespace{} // none is a list, too
	for _, pin := range sandboxes.Pins(s.records.SandboxDir(r.ID), r) {
		info.RuntimeSpec.Linux.Namespaces = append(info.RuntimeSpec.Linux.Namespaces, namespace{pin.Type, pin.Path})
	}
	return infoOf(map[string]any{"record": r, "info": info})
}

// pidOf returns the number of a container's app; 0 if the app does not run, or its stager does not answer.
func (s *Server) pidOf(ctx context.Context, r records.Container) int {
	_, pod, err := s.running(r.ID)
	if err != nil {
		return 0
	}
	status, err := s.daemon.Status(ctx, pod)
	if err != nil {
		return 0
	}
	return status.Apps[r.App].PID
}
