package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/internal/userns"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/plan"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox implements the CRI.
func (s *Server) RunPodSandbox(
	ctx context.Context, r *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	record, err := newSandbox(r.GetConfig(), r.GetRuntimeHandler(), s.config.CgroupDriver)
	if err != nil {
		return nil, err
	}
	if record.Users != nil && !userns.MapsTmpfs() {
		return nil, fmt.Errorf("%w: user namespace: the kernel cannot map the pod's /dev/shm before Linux 6.3", errInvalid)
	}
	// By the name, so that a call that is repeated waits for the first one.
	release, err := s.locks.take(ctx, sandboxName(record))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.checkNew(ctx, record); err != nil {
		return nil, err
	}
	if err := s.fillSandbox(&record); err != nil {
		return nil, err
	}
	if err := s.records.WriteSandbox(record); err != nil {
		return nil, errors.Join(err, s.records.RemoveSandbox(record.ID))
	}
	if err := s.makeSandbox(ctx, &record); err != nil {
		return nil, err
	}
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, record.ID, record.ID))
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: record.ID}, nil
}

// fillSandbox adds what the host decides.
func (s *Server) fillSandbox(r *records.Sandbox) (err error) {
	if r.ResolvConf == "" {
		text, err := os.ReadFile("/etc/resolv.conf")
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		r.ResolvConf = string(text)
	}
	if r.HostNetwork {
		r.Hostname, err = os.Hostname()
		return err
	}
	return s.sandboxes.Attach(r)
}

// undoTime is how long the leftovers of a call that failed may take.
const undoTime = time.Minute

// makeSandbox makes the sandbox of a record in Phase Making, and removes it after an error.
func (s *Server) makeSandbox(ctx context.Context, r *records.Sandbox) error {
	err := s.sandboxes.Make(ctx, s.records.SandboxDir(r.ID), r)
	if err == nil {
		ready := *r
		ready.Phase = records.Ready
		err = s.records.WriteSandbox(ready)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return fmt.Errorf("run sandbox %s: %w", r.Name, errors.Join(err, s.undoSandbox(ctx, *r)))
	}
	return nil
}

// undoSandbox removes a sandbox that was not finished. One that cannot be removed is listed from now on, so that
// kubelet stops and removes it.
func (s *Server) undoSandbox(ctx context.Context, r records.Sandbox) error {
	release, err := s.locks.take(ctx, r.ID)
	if err != nil {
		return err
	}
	defer release()
	if _, err := s.records.Sandbox(r.ID); errors.Is(err, records.ErrNotFound) {
		return nil // a call before has removed it
	}
	err = errors.Join(s.sandboxes.Stop(ctx, s.records.SandboxDir(r.ID), r), s.sandboxes.Remove(r))
	if err == nil {
		return s.records.RemoveSandbox(r.ID)
	}
	r.Phase = records.Failed
	return errors.Join(err, s.records.WriteSandbox(r))
}

// sandboxName is what no two sandboxes have in common.
func sandboxName(r records.Sandbox) string {
	return fmt.Sprintf("%s_%s_%s_%d", r.Name, r.Namespace, r.UID, r.Attempt)
}

// checkNew returns an error if a sandbox has the record's name. It removes one that was not finished.
func (s *Server) checkNew(ctx context.Context, record records.Sandbox) error {
	all, err := s.records.Sandboxes()
	if err != nil {
		return err
	}
	for _, other := range all {
		if sandboxName(other) != sandboxName(record) {
			continue
		}
		if other.Phase == records.Ready || other.Phase == records.Stopped {
			return fmt.Errorf("sandbox %s exists already: %s", sandboxName(record), other.ID)
		}
		if err := s.undoSandbox(ctx, other); err != nil {
			return fmt.Errorf("sandbox %s: leftovers of an earlier call: %w", other.Name, err)
		}
	}
	return nil
}

// newSandbox decides what a sandbox is.
func newSandbox(c *runtimeapi.PodSandboxConfig, handler, driver string) (records.Sandbox, error) {
	if err := checkSandbox(c, handler); err != nil {
		return records.Sandbox{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	m, options := c.GetMetadata(), c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	users, err := translate.UsersOf(options)
	if err != nil {
		return records.Sandbox{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	r := records.Sandbox{
		ID: records.NewID(), Phase: records.Making, Created: time.Now(),
		Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(), Attempt: m.GetAttempt(),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(), Handler: handler,
		Hostname: plan.HostnameOf(cmp.Or(c.GetHostname(), m.GetName())), LogDirectory: c.GetLogDirectory(),
		ResolvConf: resolvConf(c.GetDnsConfig()), Sysctls: c.GetLinux().GetSysctls(),
		NetworkMode: int32(options.GetNetwork()), PIDMode: int32(options.GetPid()), IPCMode: int32(options.GetIpc()),
		HostNetwork: options.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		HostIPC:     options.GetIpc() == runtimeapi.NamespaceMode_NODE,
		Users:       users,
	}
	if !r.HostNetwork {
		r.Ports = portsOf(c)
	}
	if err := errors.Join(sandboxes.CheckSysctls(r), sandboxes.CheckBandwidth(r)); err != nil {
		return r, fmt.Errorf("%w: %w", errInvalid, err)
	}
	parent, err := cgroupParent(c.GetLinux().GetCgroupParent(), driver)
	r.Cgroup = path.Join(parent, cgroupName(r.ID))
	return r, err
}

// checkSandbox refuses a sandbox that the server cannot make.
func checkSandbox(c *runtimeapi.PodSandboxConfig, handler string) error {
	m := c.GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" || m.GetNamespace() == "" {
		return errors.New("metadata wants a name, a namespace and a UID")
	}
	if handler != "" && handler != runtimeHandler {
		return fmt.Errorf("unknown runtime handler %q", handler)
	}
	o := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if o.GetUsernsOptions().GetMode() == runtimeapi.NamespaceMode_NODE || o.GetUsernsOptions() == nil {
		return nil
	}
	for name, mode := range map[string]runtimeapi.NamespaceMode{
		"network": o.GetNetwork(), "IPC": o.GetIpc(), "PID": o.GetPid(),
	} {
		if mode == runtimeapi.NamespaceMode_NODE {
			return fmt.Errorf("user namespace of the pod's own with the node's %s namespace", name)
		}
	}
	return nil
}

// portsOf returns the ports of the sandbox that the host publishes.
func portsOf(c *runtimeapi.PodSandboxConfig) []networks.PortMapping {
	var ports []networks.PortMapping
	for _, p := range c.GetPortMappings() {
		if p.GetHostPort() > 0 {
			ports = append(ports, networks.PortMapping{
				HostPort: uint(p.GetHostPort()), ContainerPort: uint(p.GetContainerPort()),
				Protocol: strings.ToLower(p.GetProtocol().String()), HostIP: p.GetHostIp(),
			})
		}
	}
	return ports
}

func cgroupName(id string) string { return "kurma-" + id }

// resolvConf returns the text of resolv.conf, "" for the host's.
func resolvConf(c *runtimeapi.DNSConfig) string {
	dns := networks.DNS{Nameservers: c.GetServers(), Search: c.GetSearches(), Options: c.GetOptions()}
	return dns.ResolvConf()
}

// runtimeHandler is the handler of a RuntimeClass for this runtime, which has one way to run pods.
const runtimeHandler = "kurma"

// defaultParent is the cgroup of sandboxes for which kubelet names none.
const defaultParent = "kurma-cri"

// cgroupParent returns the path of kubelet's cgroup for a pod, below each hierarchy's root. The driver systemd names
// a slice, whose name has the names of those around it: a-b.slice is in a.slice.
func cgroupParent(parent, driver string) (string, error) {
	parent = strings.Trim(parent, "/")
	if parent == "" {
		return defaultParent, nil
	}
	if slices.Contains(strings.Split(parent, "/"), "..") {
		return "", fmt.Errorf("%w: cgroup parent %q", errInvalid, parent)
	}
	if driver != driverSystemd || !strings.HasSuffix(parent, ".slice") || strings.Contains(parent, "/") {
		return parent, nil
	}
	var around string
	words := strings.Split(strings.TrimSuffix(parent, ".slice"), "-")
	for i := range words {
		around = path.Join(around, strings.Join(words[:i+1], "-")+".slice")
	}
	return around, nil
}

// StopPodSandbox implements the CRI.
func (s *Server) StopPodSandbox(
	ctx context.Context, r *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	err := s.stopSandbox(ctx, r.GetPodSandboxId())
	return &runtimeapi.StopPodSandboxResponse{}, ignoreMissing(err)
}

// stopSandbox returns ErrNotFound for a sandbox that is not known, and for nothing else.
func (s *Server) stopSandbox(ctx context.Context, id string) error {
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	record, err := s.sandboxToEnd(id)
	if err != nil {
		return err
	}
	containers, err := s.containersOf(id)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if pod, err := s.podOf(c); err == nil && (pod == nil || pod.Damage == nil && pod.Ended()) {
			s.removeMounts(c.ID) // of one that was not started, and will not be
			continue             // its lock may be a removal's, which takes its time
		}
		if err := ignoreMissing(s.stopContainer(ctx, c.ID, 0)); err != nil {
			return err
		}
	}
	if record.Phase == records.Stopped {
		return nil
	}
	if err := s.sandboxes.Stop(ctx, s.records.SandboxDir(id), record); err != nil {
		return err
	}
	if record.Name == "" {
		return nil // its record is damaged: it is removed, or stopped again
	}
	record.Phase = records.Stopped
	if err := s.records.WriteSandbox(record); err != nil {
		// On a full disk kubelet must be able to end pods. Without its namespaces the sandbox is not ready.
		slog.Warn("sandbox is stopped, but its record is not written", "sandbox", id, "error", err)
	}
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, id, id))
	return nil
}

// sandboxToEnd returns the record of a sandbox that is stopped or removed. Instead of a damaged record it returns the
// other known facts, with the current network configuration.
func (s *Server) sandboxToEnd(id string) (records.Sandbox, error) {
	record, err := s.records.Sandbox(id)
	if !errors.Is(err, records.ErrDamaged) {
		return record, err
	}
	record = records.Sandbox{ID: id, Phase: records.Ready}
	if err := s.sandboxes.Attach(&record); err != nil {
		slog.Warn("sandbox whose record is damaged is not disconnected", "sandbox", id, "error", err)
	}
	record.Cgroup, err = sandboxes.FindCgroup(cgroupName(id))
	return record, err
}

// RemovePodSandbox implements the CRI.
func (s *Server) RemovePodSandbox(
	ctx context.Context, r *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	err := s.stopAndRemove(ctx, r.GetPodSandboxId())
	if errors.Is(err, records.ErrNotFound) {
		err = s.records.RemoveSandbox(r.GetPodSandboxId()) // whose folder an error may have left
	}
	return &runtimeapi.RemovePodSandboxResponse{}, err
}

func (s *Server) removeSandbox(ctx context.Context, id string) error {
	release, err := s.locks.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	record, err := s.sandboxToEnd(id)
	if err != nil {
		return err
	}
	if err := s.sandboxes.Remove(record); err != nil {
		return err
	}
	if err := s.records.RemoveSandbox(id); err != nil {
		return err
	}
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, id, id))
	return nil
}
