package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/metrics"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats implements the CRI.
func (s *Server) ContainerStats(
	_ context.Context, r *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	record, pod, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	stats, err := s.containerStats(record, pod, firstSizes())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}

// ListContainerStats implements the CRI, for the containers that run.
func (s *Server) ListContainerStats(
	_ context.Context, r *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	all, err := s.listStats(r.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

// StreamContainerStats implements the CRI.
func (s *Server) StreamContainerStats(
	r *runtimeapi.StreamContainerStatsRequest, stream runtimeapi.RuntimeService_StreamContainerStatsServer,
) error {
	all, err := s.listStats(r.GetFilter())
	return sendAll(all, err, func(part []*runtimeapi.ContainerStats) error {
		return stream.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

func (s *Server) listStats(f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	all, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	return s.statsOf(all, f, firstSizes())
}

// statsOf returns the statistics of those of the containers that run and that the filter wants. It waits until that
// time for sizes.
func (s *Server) statsOf(
	all []records.Container, f *runtimeapi.ContainerStatsFilter, until time.Time,
) ([]*runtimeapi.ContainerStats, error) {
	var list []*runtimeapi.ContainerStats
	for _, r := range all {
		if !matches(f.GetId(), r.ID) || !matches(f.GetPodSandboxId(), r.SandboxID) ||
			!hasLabels(r.Labels, f.GetLabelSelector()) {
			continue
		}
		pod, err := s.podOf(r)
		if err != nil {
			return nil, err
		}
		if !runs(pod) {
			continue
		}
		stats, err := s.containerStats(r, pod, until)
		if err != nil {
			return nil, err
		}
		list = append(list, stats)
	}
	return list, nil
}

func (s *Server) containerStats(
	r records.Container, pod *pods.Pod, until time.Time,
) (*runtimeapi.ContainerStats, error) {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	used, _ := group.Usage(appGroup(r)) // an app that has just ended uses nothing
	now := time.Now().UnixNano()
	written, files := s.written(until, r, pod), metrics.FilesOf(group, appGroup(r))
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: r.ID, Metadata: containerMetadata(r), Labels: r.Labels, Annotations: r.Annotations,
		},
		Cpu: cpuUsage(used, now), Memory: memoryUsage(used, files, now),
		WritableLayer: s.layerUsage(written), Swap: swapUsage(files, now),
	}, nil
}

// layerUsage returns nil for a size that is not known yet.
func (s *Server) layerUsage(written diskUsage) *runtimeapi.FilesystemUsage {
	if written.when.IsZero() {
		return nil
	}
	return &runtimeapi.FilesystemUsage{
		Timestamp: written.when.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.State},
		UsedBytes:  &runtimeapi.UInt64Value{Value: written.bytes},
		InodesUsed: &runtimeapi.UInt64Value{Value: written.inodes},
	}
}

// written returns what a container has written, see diskUsages.of.
func (s *Server) written(until time.Time, r records.Container, pod *pods.Pod) diskUsage {
	root := filepath.Join(pod.Dir, "root")
	return s.disk.of(until, r.ID, filepath.Join(root, names.ScratchDir), filepath.Join(root, names.EmptyVolumesDir))
}

func known(n int64) *runtimeapi.UInt64Value {
	if n == cgroups.Unknown {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: uint64(n)}
}

func cpuUsage(u cgroups.Usage, now int64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: known(int64(u.CPU))}
}

// value returns nil for a number that no file of the machine has.
func value(n uint64, ok bool) *runtimeapi.UInt64Value {
	if !ok {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: n}
}

// swapUsage returns nil where the kernel does not count swap.
func swapUsage(files *metrics.GroupFiles, now int64) *runtimeapi.SwapUsage {
	n, ok := files.Bytes("container_memory_swap")
	if !ok {
		return nil
	}
	return &runtimeapi.SwapUsage{Timestamp: now, SwapUsageBytes: value(n, ok)}
}

func memoryUsage(u cgroups.Usage, files *metrics.GroupFiles, now int64) *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: known(u.Memory), UsageBytes: value(files.Bytes("container_memory_usage_bytes")),
		RssBytes: value(files.Bytes("container_memory_rss")), PageFaults: value(files.MemoryStat("pgfault")),
		MajorPageFaults: value(files.MemoryStat("pgmajfault")),
	}
	if u.MemoryLimit != cgroups.Unknown && u.Memory != cgroups.Unknown {
		m.AvailableBytes = known(max(0, u.MemoryLimit-u.Memory))
	}
	return m
}

// PodSandboxStats implements the CRI.
func (s *Server) PodSandboxStats(
	_ context.Context, r *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	record, err := s.records.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	containers, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	stats, err := s.sandboxStats(record, containers, firstSizes())
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats}, err
}

// ListPodSandboxStats implements the CRI, for the sandboxes that are ready.
func (s *Server) ListPodSandboxStats(
	_ context.Context, r *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	all, err := s.listSandboxStats(r.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

// StreamPodSandboxStats implements the CRI.
func (s *Server) StreamPodSandboxStats(
	r *runtimeapi.StreamPodSandboxStatsRequest, stream runtimeapi.RuntimeService_StreamPodSandboxStatsServer,
) error {
	all, err := s.listSandboxStats(r.GetFilter())
	return sendAll(all, err, func(part []*runtimeapi.PodSandboxStats) error {
		return stream.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (s *Server) listSandboxStats(f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	wanted := func(r records.Sandbox) bool {
		return matches(f.GetId(), r.ID) && hasLabels(r.Labels, f.GetLabelSelector())
	}
	return ofReady(s, wanted, s.sandboxStats)
}

// ofReady lists what read returns of each wanted sandbox that is ready. Read gets all containers' records, and the time
// until which it may wait for the first size of a container. It may fail for a sandbox that is stopped meanwhile.
func ofReady[T any](
	s *Server, wanted func(records.Sandbox) bool, read func(records.Sandbox, []records.Container, time.Time) (T, error),
) ([]T, error) {
	all, err := s.records.Sandboxes()
	if err != nil {
		return nil, err
	}
	containers, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	ready := func(r records.Sandbox) bool { return s.sandboxState(r) == runtimeapi.PodSandboxState_SANDBOX_READY }
	until := firstSizes()
	var list []T
	for _, r := range all {
		if !wanted(r) || !ready(r) {
			continue
		}
		one, err := read(r, containers, until)
		if err != nil && ready(r) {
			return nil, err
		}
		if err == nil {
			list = append(list, one)
		}
	}
	return list, nil
}

func (s *Server) sandboxStats(
	r records.Sandbox, all []records.Container, until time.Time,
) (*runtimeapi.PodSandboxStats, error) {
	group, err := cgroups.Open(r.Cgroup)
	if err != nil {
		return nil, err
	}
	used, _ := group.Usage("")
	pids, err := group.PIDs()
	if err != nil {
		return nil, err
	}
	containers, err := s.statsOf(all, &runtimeapi.ContainerStatsFilter{PodSandboxId: r.ID}, until)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	stats := &runtimeapi.LinuxPodSandboxStats{
		Cpu: cpuUsage(used, now), Memory: memoryUsage(used, metrics.FilesOf(group, ""), now), Containers: containers,
		Process: &runtimeapi.ProcessUsage{
			Timestamp: now, ProcessCount: &runtimeapi.UInt64Value{Value: uint64(len(pids))},
		},
	}
	if !r.HostNetwork {
		interfaces, err := readInterfaces(s.records.SandboxDir(r.ID), r)
		if err != nil {
			return nil, err
		}
		stats.Network = networkUsage(interfaces, sandboxes.Interface(r), now)
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: r.ID, Metadata: sandboxMetadata(r), Labels: r.Labels, Annotations: r.Annotations,
		},
		Linux: stats,
	}, nil
}

// networkUsage returns the traffic of a sandbox's interfaces, nil without the interface of that name: a container may
// have removed it, and kubelet accepts no usage without a default interface.
func networkUsage(all []metrics.Interface, name string, now int64) *runtimeapi.NetworkUsage {
	usage := &runtimeapi.NetworkUsage{Timestamp: now}
	for _, i := range all {
		column := func(n int) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: i.Columns[n]} }
		one := &runtimeapi.NetworkInterfaceUsage{
			Name:    i.Name,
			RxBytes: column(metrics.RxBytes), RxErrors: column(metrics.RxErrors),
			TxBytes: column(metrics.TxBytes), TxErrors: column(metrics.TxErrors),
		}
		if i.Name == name {
			usage.DefaultInterface = one
		} else {
			usage.Interfaces = append(usage.Interfaces, one)
		}
	}
	if usage.DefaultInterface == nil {
		return nil
	}
	return usage
}

// readInterfaces returns the interfaces of a sandbox but its loopback: the default one, and some if there are too many.
func readInterfaces(dir string, r records.Sandbox) ([]metrics.Interface, error) {
	var text []byte
	err := thread.New(func() (err error) {
		if err := sandboxes.Enter(dir, r); err != nil {
			return err
		}
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read network of sandbox: %w", err)
	}
	return metrics.ParseInterfaces(string(text), sandboxes.Interface(r)), nil
}
