package server

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/metrics"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListMetricDescriptors implements the CRI.
func (s *Server) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	r := new(runtimeapi.ListMetricDescriptorsResponse)
	for _, m := range metrics.Table() {
		r.Descriptors = append(r.Descriptors, &runtimeapi.MetricDescriptor{
			Name: m.Name, Help: m.Help, LabelKeys: metrics.LabelNames(m),
		})
	}
	return r, nil
}

// ListPodSandboxMetrics implements the CRI, for the sandboxes that are ready and their containers that run.
func (s *Server) ListPodSandboxMetrics(
	context.Context, *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	all, err := s.listMetrics()
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

// StreamPodSandboxMetrics implements the CRI.
func (s *Server) StreamPodSandboxMetrics(
	_ *runtimeapi.StreamPodSandboxMetricsRequest, stream runtimeapi.RuntimeService_StreamPodSandboxMetricsServer,
) error {
	all, err := s.listMetrics()
	return sendAll(all, err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return stream.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

func (s *Server) listMetrics() ([]*runtimeapi.PodSandboxMetrics, error) {
	return ofReady(s, func(records.Sandbox) bool { return true }, s.metricsOf)
}

// metricsOf returns the metrics of a sandbox, and of those of the containers that are in it.
func (s *Server) metricsOf(
	sandbox records.Sandbox, containers []records.Container, until time.Time,
) (*runtimeapi.PodSandboxMetrics, error) {
	all := &runtimeapi.PodSandboxMetrics{PodSandboxId: sandbox.ID}
	var err error
	if all.Metrics, err = s.sandboxMetrics(sandbox); err != nil {
		return nil, err
	}
	for _, c := range containers {
		if c.SandboxID != sandbox.ID {
			continue
		}
		list, err := s.containerMetrics(sandbox, c, until)
		if err != nil {
			return nil, err
		}
		if list != nil {
			all.ContainerMetrics = append(all.ContainerMetrics, &runtimeapi.ContainerMetrics{ContainerId: c.ID, Metrics: list})
		}
	}
	return all, nil
}

// inCRI returns readings as the CRI has them. Its values are whole numbers: seconds are rounded down.
func inCRI(r *metrics.Readings) (list []*runtimeapi.Metric) {
	kinds := map[metrics.Kind]runtimeapi.MetricType{
		metrics.Counter: runtimeapi.MetricType_COUNTER, metrics.Gauge: runtimeapi.MetricType_GAUGE,
	}
	for _, s := range r.Samples {
		list = append(list, &runtimeapi.Metric{
			Name: s.Name, MetricType: kinds[metrics.Of(s.Name).Kind], LabelValues: r.LabelValues(s),
			Value: &runtimeapi.UInt64Value{Value: uint64(s.Value)},
		})
	}
	return list
}

// sandboxMetrics are those of a sandbox's network, unless it is the host's.
func (s *Server) sandboxMetrics(r records.Sandbox) ([]*runtimeapi.Metric, error) {
	if r.HostNetwork {
		return nil, nil
	}
	interfaces, err := readInterfaces(s.records.SandboxDir(r.ID), r)
	if err != nil {
		return nil, err
	}
	values := &metrics.Readings{
		Labels: metrics.Labels{ID: "/" + r.Cgroup, Name: r.ID, Namespace: r.Namespace, Pod: r.Name},
	}
	values.AddInterfaces(interfaces)
	return inCRI(values), nil
}

// containerMetrics returns none for a container that does not run.
func (s *Server) containerMetrics(
	sandbox records.Sandbox, r records.Container, until time.Time,
) ([]*runtimeapi.Metric, error) {
	pod, err := s.podOf(r)
	if err != nil || !runs(pod) {
		return nil, err
	}
	asked := new(runtimeapi.LinuxContainerResources)
	if err := decode(r.Resources, asked); err != nil {
		return nil, err
	}
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	values := &metrics.Readings{Labels: metrics.Labels{
		Container: r.Name, ID: "/" + filepath.Join(group.Path, appGroup(r)), Image: cmp.Or(r.ImageSpec, r.Image), Name: r.ID,
		Namespace: sandbox.Namespace, Pod: sandbox.Name,
	}}
	values.AddGroup(group, appGroup(r), asked.CpuQuota > 0)
	values.Add("container_start_time_seconds", float64(cmp.Or(r.Started, pod.State.Created).Unix()))
	values.Add("container_last_seen", float64(time.Now().Unix()))
	addLimits(values, asked)
	if err := s.addFileSystem(values, s.written(until, r, pod)); err != nil {
		return nil, err
	}
	return inCRI(values), nil
}

// addLimits adds the limits that kubelet has asked for. No limit of memory is 0; no quota is no value, because the
// usual alert divides by it.
func addLimits(r *metrics.Readings, asked *runtimeapi.LinuxContainerResources) {
	r.Add("container_spec_cpu_period", positive(asked.GetCpuPeriod()))
	if asked.CpuQuota > 0 {
		r.Add("container_spec_cpu_quota", float64(asked.CpuQuota))
	}
	r.Add("container_spec_cpu_shares", positive(asked.GetCpuShares()))
	r.Add("container_spec_memory_limit_bytes", positive(asked.GetMemoryLimitInBytes()))
	r.Add("container_spec_memory_swap_limit_bytes", positive(asked.GetMemorySwapLimitInBytes()))
}

func positive(n int64) float64 { return float64(max(0, n)) }

// addFileSystem adds the disk usage of the container, and the size of its file system.
func (s *Server) addFileSystem(r *metrics.Readings, written diskUsage) error {
	var system unix.Statfs_t
	var info unix.Stat_t
	if err := unix.Statfs(s.config.State, &system); err != nil {
		return fmt.Errorf("stat file system of %s: %w", s.config.State, err)
	}
	if err := unix.Stat(s.config.State, &info); err != nil {
		return fmt.Errorf("stat %s: %w", s.config.State, err)
	}
	device := metrics.DeviceName(fmt.Sprintf("%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev)))
	if !written.when.IsZero() {
		r.Add("container_fs_usage_bytes", float64(written.bytes), device)
	}
	r.Add("container_fs_limit_bytes", float64(system.Blocks*uint64(system.Frsize)), device)
	r.Add("container_fs_inodes_total", float64(system.Files), device)
	r.Add("container_fs_inodes_free", float64(system.Ffree), device)
	return nil
}
