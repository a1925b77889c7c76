package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/launcher/cgroups"
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
	stats, err := s.containerStats(record, pod)
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
		if pod == nil || pod.State.Phase != pods.Running {
			continue
		}
		stats, err := s.containerStats(r, pod)
		if err != nil {
			return nil, err
		}
		list = append(list, stats)
	}
	return list, nil
}

func (s *Server) containerStats(r records.Container, pod *pods.Pod) (*runtimeapi.ContainerStats, error) {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	used, _ := group.Usage(filepath.Join(names.AppsCgroup, r.App)) // an app that has just ended uses nothing
	now := time.Now().UnixNano()
	root := filepath.Join(pod.Dir, "root")
	layer, volumes := filepath.Join(root, names.ScratchDir), filepath.Join(root, names.EmptyVolumesDir)
	written, when := s.disk.of(r.ID, time.Now(), layer, volumes)
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: r.ID, Metadata: containerMetadata(r), Labels: r.Labels, Annotations: r.Annotations,
		},
		Cpu: cpuUsage(used, now), Memory: memoryUsage(used, now),
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: when.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.State},
			UsedBytes: &runtimeapi.UInt64Value{Value: written},
		},
	}, nil
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

func memoryUsage(u cgroups.Usage, now int64) *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: known(u.Memory), UsageBytes: known(u.Memory)}
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
	stats, err := s.sandboxStats(record)
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
	all, err := s.records.Sandboxes()
	if err != nil {
		return nil, err
	}
	var list []*runtimeapi.PodSandboxStats
	for _, r := range all {
		if !matches(f.GetId(), r.ID) || !hasLabels(r.Labels, f.GetLabelSelector()) ||
			s.sandboxState(r) != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		stats, err := s.sandboxStats(r)
		if err != nil {
			return nil, err
		}
		list = append(list, stats)
	}
	return list, nil
}

func processUsage(used cgroups.Usage, now int64) *runtimeapi.ProcessUsage {
	return &runtimeapi.ProcessUsage{
		Timestamp: now, ProcessCount: &runtimeapi.UInt64Value{Value: uint64(len(used.Processes))},
	}
}

func (s *Server) sandboxStats(r records.Sandbox) (*runtimeapi.PodSandboxStats, error) {
	group, err := cgroups.Open(r.Cgroup)
	if err != nil {
		return nil, err
	}
	used, _ := group.Usage("")
	containers, err := s.listStats(&runtimeapi.ContainerStatsFilter{PodSandboxId: r.ID})
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	stats := &runtimeapi.LinuxPodSandboxStats{
		Cpu: cpuUsage(used, now), Memory: memoryUsage(used, now), Containers: containers,
		Process: processUsage(used, now),
	}
	if !r.HostNetwork {
		if stats.Network, err = networkUsage(s.records.SandboxDir(r.ID), r, now); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: r.ID, Metadata: sandboxMetadata(r), Labels: r.Labels, Annotations: r.Annotations,
		},
		Linux: stats,
	}, nil
}

// networkUsage reads what the interfaces of a sandbox have carried.
func networkUsage(dir string, r records.Sandbox, now int64) (*runtimeapi.NetworkUsage, error) {
	var text []byte
	err := sandboxes.OnThread(func() (err error) {
		if err := sandboxes.Enter(dir, r); err != nil {
			return err
		}
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read network of sandbox: %w", err)
	}
	usage := &runtimeapi.NetworkUsage{Timestamp: now}
	for line := range strings.Lines(string(text)) {
		i, err := readInterface(line)
		switch {
		case err != nil || i.Name == "lo":
		case usage.DefaultInterface == nil:
			usage.DefaultInterface = i
		default:
			usage.Interfaces = append(usage.Interfaces, i)
		}
	}
	return usage, nil
}

// readInterface reads a line of proc_pid_net(5), dev.
func readInterface(line string) (*runtimeapi.NetworkInterfaceUsage, error) {
	name, rest, _ := strings.Cut(line, ":")
	fields := strings.Fields(rest)
	const columns = 16
	if len(fields) < columns {
		return nil, errors.New("not the line of an interface")
	}
	column := func(n int) *runtimeapi.UInt64Value {
		value, _ := strconv.ParseUint(fields[n], 10, 64) // the kernel writes numbers
		return &runtimeapi.UInt64Value{Value: value}
	}
	return &runtimeapi.NetworkInterfaceUsage{
		Name:    strings.TrimSpace(name),
		RxBytes: column(0), RxErrors: column(2), TxBytes: column(8), TxErrors: column(10),
	}, nil
}
