package tests

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metrics returns the metrics of the pod: the values by the metric's name, and by the values of the labels which the
// metric alone has. It checks that each has a descriptor, with as many labels.
func (p *pod) metrics() (ofPod, ofContainers map[string]uint64) {
	p.Helper()
	described, err := p.ListMetricDescriptors(p.Context(), &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		p.Fatal(err)
	}
	r, err := p.ListPodSandboxMetrics(p.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil || len(r.PodMetrics) != 1 || r.PodMetrics[0].PodSandboxId != p.id {
		p.Fatalf("%v, %v", r, err)
	}
	read := func(all []*runtimeapi.Metric) map[string]uint64 {
		values := make(map[string]uint64)
		for _, m := range all {
			i := slices.IndexFunc(described.Descriptors, func(d *runtimeapi.MetricDescriptor) bool { return d.Name == m.Name })
			if i < 0 || len(described.Descriptors[i].LabelKeys) != len(m.LabelValues) || m.Timestamp != 0 {
				p.Errorf("%v has no descriptor with its labels", m)
				continue
			}
			name := m.Name
			for n, key := range described.Descriptors[i].LabelKeys {
				if !slices.Contains([]string{"container", "id", "image", "name", "namespace", "pod", "device", "major", "minor"}, key) {
					name += " " + m.LabelValues[n]
				}
			}
			values[name] += m.Value.Value
		}
		return values
	}
	ofContainers = make(map[string]uint64)
	for _, c := range r.PodMetrics[0].ContainerMetrics {
		for name, value := range read(c.Metrics) {
			ofContainers[name] += value
		}
	}
	return read(r.PodMetrics[0].Metrics), ofContainers
}

// checkLabels checks the labels of a metric that Prometheus' users select by.
func (p *pod) checkLabels(id string, config *runtimeapi.ContainerConfig) {
	p.Helper()
	r, err := p.ListPodSandboxMetrics(p.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range r.PodMetrics[0].ContainerMetrics[0].Metrics {
		if m.Name != "container_cpu_usage_seconds_total" {
			continue
		}
		metadata := p.config.Metadata
		want := []string{config.Metadata.Name, m.LabelValues[1], config.Image.Image, id, metadata.Namespace, metadata.Name, "total"}
		if !slices.Equal(m.LabelValues, want) || m.MetricType != runtimeapi.MetricType_COUNTER ||
			!strings.HasPrefix(m.LabelValues[1], "/") || !strings.HasSuffix(m.LabelValues[1], "/apps/"+config.Metadata.Name) {
			p.Errorf("%v, want the labels %q", m, want)
		}
	}
}

// An interface's name need be no text, but an answer with such a name would not be sent at all.
func TestAnInterfaceMayHaveAnyName(t *testing.T) {
	p := newPod(t)
	config := p.script("ip link add name $(printf '\\377') type bridge && exec sleep 1000")
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}}}}
	p.startNew(config)
	surroundings.Eventually(t, "the interface has metrics", func() bool {
		pod, _ := p.metrics()
		_, ok := pod["container_network_receive_bytes_total \uFFFD"]
		return ok
	})
}

// Prometheus gets cAdvisor's metrics of a container by kubelet.
func TestMetricsOfContainers(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.limited("head -c 52428800 /dev/zero >/file; sh -c 'ulimit -t 2; while :; do :; done'; nc -l -p 80 >/dev/null", &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 200 << 20, CpuQuota: 90000, CpuPeriod: 100000, CpuShares: 512,
	})
	id := p.startNew(config)
	listens := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "netstat -ltn | grep :80"}}
	surroundings.Eventually(t, "the container listens", func() bool {
		r, err := p.ExecSync(ctx, listens)
		return err == nil && r.ExitCode == 0
	})
	var pod, container map[string]uint64
	surroundings.Eventually(t, "the size of the layer is known", func() bool {
		pod, container = p.metrics()
		_, known := container["container_fs_usage_bytes"]
		return known
	})
	for name, bounds := range map[string][2]uint64{
		"container_cpu_usage_seconds_total total":           {1, 60},
		"container_cpu_cfs_periods_total":                   {1, 10_000},
		"container_memory_cache":                            {45 << 20, 200 << 20},
		"container_memory_usage_bytes":                      {45 << 20, 200 << 20},
		"container_memory_working_set_bytes":                {1, 30 << 20},
		"container_memory_rss":                              {1, 30 << 20},
		"container_memory_failures_total pgfault hierarchy": {1, 1 << 30},
		"container_memory_failures_total pgfault container": {1, 1 << 30},
		"container_fs_usage_bytes":                          {45 << 20, 60 << 20},
		"container_processes":                               {1, 2},
		"container_threads":                                 {1, 2},
		"container_sockets":                                 {1, 1},
		"container_file_descriptors":                        {4, 100},
		"container_spec_memory_limit_bytes":                 {200 << 20, 200 << 20},
		"container_spec_cpu_quota":                          {90000, 90000},
		"container_spec_cpu_shares":                         {512, 512},
		"container_start_time_seconds":                      {uint64(time.Now().Unix()) - 600, uint64(time.Now().Unix())},
		"container_oom_events_total":                        {0, 0},
		"container_threads_max":                             {0, 0},
		version("container_cpu_user_seconds_total", "container_pressure_cpu_waiting_seconds_total"): {0, 60},
	} {
		value, ok := container[name]
		if !ok || value < bounds[0] || value > bounds[1] {
			t.Errorf("%s: %d, %t, want %d to %d", name, value, ok, bounds[0], bounds[1])
		}
	}
	p.checkLabels(id, config)
	before := pod["container_network_receive_bytes_total eth0"]
	sandbox, err := p.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", net.JoinHostPort(sandbox.Status.Network.Ip, "80"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = connection.Write(make([]byte, 100_000))
	if err := errors.Join(err, connection.Close()); err != nil {
		t.Fatal(err)
	}
	p.awaitExit(id)
	pod, container = p.metrics()
	if got := pod["container_network_receive_bytes_total eth0"] - before; got < 100_000 || got > 200_000 {
		t.Errorf("%d bytes were received", got)
	}
	if len(container) > 0 {
		t.Errorf("a container that has ended has %v", container)
	}
	stats, err := p.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil || stats.Stats.Linux.Network.DefaultInterface.RxBytes.GetValue() < 100_000 {
		t.Errorf("%v, %v", stats, err)
	}
}
