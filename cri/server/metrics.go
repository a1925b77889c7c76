package server

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/cgroups"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// commonLabels returns the labels of all metrics, cAdvisor's: Prometheus' users join metrics by them.
func commonLabels() []string { return []string{"container", "id", "image", "name", "namespace", "pod"} }

// ListMetricDescriptors implements the CRI.
func (s *Server) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	r := new(runtimeapi.ListMetricDescriptorsResponse)
	for _, m := range metrics {
		r.Descriptors = append(r.Descriptors, &runtimeapi.MetricDescriptor{
			Name: m.name, Help: m.help, LabelKeys: slices.Concat(commonLabels(), m.labels),
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

// readings are values of metrics which share the values of the common labels.
type readings struct {
	common []string
	list   []*runtimeapi.Metric
}

// add adds a value of a metric, with the values of the labels that the metric has beside the common ones.
func (r *readings) add(name string, value uint64, labels ...string) {
	r.list = append(r.list, &runtimeapi.Metric{
		Name: name, MetricType: metricOf(name).kind, LabelValues: slices.Concat(r.common, labels),
		Value: &runtimeapi.UInt64Value{Value: value},
	})
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
	values := &readings{common: []string{"", "/" + r.Cgroup, "", r.ID, r.Namespace, r.Name}}
	for _, i := range interfaces {
		for _, m := range networkMetrics {
			values.add(m.name, i.columns[m.column], i.name)
		}
	}
	return values.list, nil
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
	values := &readings{common: []string{
		r.Name, "/" + filepath.Join(group.Path, appGroup(r)), cmp.Or(r.ImageSpec, r.Image), r.ID,
		sandbox.Namespace, sandbox.Name,
	}}
	files := filesOf(group, appGroup(r))
	for _, m := range metrics {
		if n, ok := files.number(m); ok && (asked.CpuQuota > 0 || !m.ofQuota()) {
			values.add(m.name, n, slices.Repeat([]string{"total"}, len(m.labels))...) // of all CPUs
		}
	}
	values.addMemory(files)
	values.addDevices(files)
	pids, _ := group.PIDsBelow(appGroup(r)) // what cannot be read is not counted
	values.addProcesses(pids)
	values.add("container_start_time_seconds", uint64(cmp.Or(r.Started, pod.State.Created).Unix()))
	values.add("container_last_seen", uint64(time.Now().Unix()))
	values.addRequested(asked)
	return values.list, s.addFileSystem(values, s.written(until, r, pod))
}

// addMemory adds the metrics of memory that are no number of a file.
func (r *readings) addMemory(files *groupFiles) {
	if used, ok := files.named("container_memory_usage_bytes"); ok {
		cache, _ := files.memoryStat("inactive_file")
		r.add("container_memory_working_set_bytes", used-min(used, cache))
	}
	for _, kind := range []string{"pgfault", "pgmajfault"} {
		for scope, key := range map[string]string{"container": kind, "hierarchy": "total_" + kind} {
			if n, ok := files.number(metric{v1: counter{"memory.stat", key, 0}, v2: counter{"memory.stat", kind, 0}}); ok {
				r.add("container_memory_failures_total", n, kind, scope)
			}
		}
	}
}

func (r *readings) addDevices(files *groupFiles) {
	for _, c := range deviceMetrics {
		numbers, want := files.numbers(c.v1, false), c.v1Key
		if len(numbers) == 0 {
			numbers, want = files.numbers("io.stat", true), c.v2Key
		}
		for key, n := range numbers {
			device, what, _ := strings.Cut(key, " ")
			major, minor, ok := strings.Cut(device, ":")
			if !ok || what != want {
				continue
			}
			r.add(c.name, n, deviceName(device))
			if c.operation != "" {
				r.add("container_blkio_device_usage_total", n, deviceName(device), major, minor, c.operation)
			}
		}
	}
}

// deviceName returns the path of a block device, MAJOR:MINOR; a device that the kernel does not name is its numbers.
func deviceName(numbers string) string {
	link, err := os.Readlink("/sys/dev/block/" + numbers)
	if err != nil {
		return numbers
	}
	return "/dev/" + filepath.Base(link)
}

// mostDescriptors is of how many descriptors a container has metrics: each takes microseconds, and an app may have many
// millions.
const mostDescriptors = 10_000

// addProcesses counts processes and their descriptors, if these are not too many.
func (r *readings) addProcesses(pids []int) {
	r.add("container_processes", uint64(len(pids)))
	var descriptors, sockets int
	for _, pid := range pids {
		files := descriptorsOf(pid, mostDescriptors+1-descriptors)
		if descriptors += len(files); descriptors > mostDescriptors {
			return
		}
		for _, file := range files {
			if target, _ := os.Readlink(file); strings.HasPrefix(target, "socket:") {
				sockets++
			}
		}
	}
	r.add("container_file_descriptors", uint64(descriptors))
	r.add("container_sockets", uint64(sockets))
}

// descriptorsOf returns the files of a process's descriptors, at most that many; none of a process that has just ended.
func descriptorsOf(pid, most int) []string {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil
	}
	defer dir.Close()
	files, _ := dir.Readdirnames(most)
	for i, name := range files {
		files[i] = filepath.Join(dir.Name(), name)
	}
	return files
}

// addRequested adds the limits that kubelet has asked for. No limit of memory is 0; no quota is no value, because the
// usual alert divides by it.
func (r *readings) addRequested(asked *runtimeapi.LinuxContainerResources) {
	r.add("container_spec_cpu_period", positive(asked.GetCpuPeriod()))
	if asked.CpuQuota > 0 {
		r.add("container_spec_cpu_quota", uint64(asked.CpuQuota))
	}
	r.add("container_spec_cpu_shares", positive(asked.GetCpuShares()))
	r.add("container_spec_memory_limit_bytes", positive(asked.GetMemoryLimitInBytes()))
	r.add("container_spec_memory_swap_limit_bytes", positive(asked.GetMemorySwapLimitInBytes()))
}

func positive(n int64) uint64 { return uint64(max(0, n)) }

// addFileSystem adds the disk usage of the container, and the size of its file system.
func (s *Server) addFileSystem(r *readings, written diskUsage) error {
	var system unix.Statfs_t
	var info unix.Stat_t
	if err := unix.Statfs(s.config.State, &system); err != nil {
		return fmt.Errorf("stat file system of %s: %w", s.config.State, err)
	}
	if err := unix.Stat(s.config.State, &info); err != nil {
		return fmt.Errorf("stat %s: %w", s.config.State, err)
	}
	device := deviceName(fmt.Sprintf("%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev)))
	if !written.when.IsZero() {
		r.add("container_fs_usage_bytes", written.bytes, device)
	}
	r.add("container_fs_limit_bytes", system.Blocks*uint64(system.Frsize), device)
	r.add("container_fs_inodes_total", system.Files, device)
	r.add("container_fs_inodes_free", system.Ffree, device)
	return nil
}
