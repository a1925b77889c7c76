package server

import (
	"context"

	"kurma.io/stager/internal/userns"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeName = "kurma-cri"
	apiVersion  = "v1"
	kubeVersion = "0.1.0" // the version of the interface before it had one, which kubelet wants
)

// Version implements the CRI.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: kubeVersion, RuntimeName: runtimeName, RuntimeVersion: s.version, RuntimeApiVersion: apiVersion,
	}, nil
}

// Status implements the CRI: the runtime is ready if the stager can be trusted, the network if CNI has a configuration
// whose plugins are there and say that they can connect pods, or if there is a Kurma network for sandboxes.
func (s *Server) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	networkErr := s.sandboxes.Ready(ctx)
	conditions := []*runtimeapi.RuntimeCondition{
		condition(runtimeapi.RuntimeReady, "StagerNotReady", s.obtainStager(ctx)),
		condition(runtimeapi.NetworkReady, "NetworkPluginNotReady", networkErr),
	}
	features := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: userns.MapsTmpfs()}
	response := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: conditions},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Features: features}, {Name: runtimeHandler, Features: features},
		},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true},
	}
	var err error
	if r.GetVerbose() {
		response.Info, err = infoOf(map[string]any{"config": s.config})
	}
	return response, err
}

func condition(kind, reason string, err error) *runtimeapi.RuntimeCondition {
	if err == nil {
		return &runtimeapi.RuntimeCondition{Type: kind, Status: true}
	}
	return &runtimeapi.RuntimeCondition{Type: kind, Reason: reason, Message: err.Error()}
}

// RuntimeConfig implements the CRI.
func (s *Server) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if s.config.CgroupDriver == driverSystemd {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig implements the CRI. The pods' addresses are those of CNI's configuration.
func (s *Server) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
