package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// limited returns the configuration of a container with limits.
func (p *pod) limited(script string, limits *runtimeapi.LinuxContainerResources) *runtimeapi.ContainerConfig {
	config := p.script(script)
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: limits}
	return config
}

// group returns a file of a container's own cgroup, or of one below it.
func (p *pod) group(controller, id, file string) string {
	p.Helper()
	return filepath.Join("/sys/fs/cgroup", controller, p.cgroup, "kurma-"+p.id, p.podOf(id), file)
}

func (n *node) wantFile(path, want string) {
	n.Helper()
	if text, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(text)) != want {
		n.Errorf("%s: %q, %v, want %s", path, text, err, want)
	}
}

// A container with limits may end at once, and one whose limits cannot be set does not run.
func TestLimitsHoldFromTheStart(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	for range 5 {
		if s := p.awaitExit(p.startNew(p.limited("true", &runtimeapi.LinuxContainerResources{CpusetCpus: "0"}))); s.ExitCode != 0 {
			t.Fatalf("%v", s)
		}
	}
	id, err := p.createContainer(p.limited("sleep 1000", &runtimeapi.LinuxContainerResources{CpusetCpus: "4000"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("processors that are not there: %v", err)
	}
	if s := p.status(id); s.ExitCode != 128 || s.Reason != "StartError" {
		t.Errorf("%v", s)
	}
	if _, err := os.Stat(p.path("state/pods/" + p.podOf(id))); err == nil {
		t.Error("the pod is left")
	}
}

// The shares of two containers count between these, and a limit that is raised is no longer that of the start.
func TestLimitsAreThoseOfTheContainer(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	const none = "9223372036854771712"
	outer := filepath.Join("/sys/fs/cgroup/memory", p.cgroup, "memory.limit_in_bytes")
	p.write(outer, "209715200")
	id := p.startNew(p.limited("sleep 1000", &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpusetCpus: "0", MemoryLimitInBytes: 100 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
	}))
	p.wantFile(p.group("cpu", id, "cpu.shares"), "512")
	p.wantFile(p.group("cpuset", id, "cpuset.cpus"), "0")
	p.write(outer, "419430400")
	for range 2 {
		if _, err := p.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{
			CpuShares: 2048, CpusetCpus: "1", MemoryLimitInBytes: 300 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p.wantFile(p.group("cpu", id, "cpu.shares"), "2048")
	for _, below := range []string{"", "apps", "apps/" + p.status(id).Metadata.Name} {
		p.wantFile(p.group("cpuset", id, below+"/cpuset.cpus"), "1")
	}
	p.wantFile(p.group("memory", id, "apps/memory.limit_in_bytes"), none)
	p.wantFile(p.group("memory", id, "apps/"+p.status(id).Metadata.Name+"/memory.limit_in_bytes"), "314572800")
	if r := p.status(id).Resources.Linux; len(r.HugepageLimits) != 1 || r.CpuShares != 2048 {
		t.Errorf("resources of the status %v", r)
	}
}

// Limits that cannot all be changed stay as they were.
func TestLimitsChangeTogether(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.limited("sleep 1000", &runtimeapi.LinuxContainerResources{CpuShares: 512, CpusetCpus: "0"}))
	for _, more := range []*runtimeapi.LinuxContainerResources{
		{CpuShares: 2048, CpusetCpus: "1", CpusetMems: "900"},
		{CpuShares: 2048, CpusetCpus: "1", MemoryLimitInBytes: 4096}, // less than it has
	} {
		_, err := p.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: more})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", more, err)
		}
	}
	app := "apps/" + p.status(id).Metadata.Name
	for _, below := range []string{"", app} {
		p.wantFile(p.group("cpu", id, below+"/cpu.shares"), "512")
		p.wantFile(p.group("cpuset", id, below+"/cpuset.cpus"), "0")
	}
	if r := p.status(id).Resources.Linux; r.CpuShares != 512 || r.CpusetCpus != "0" {
		t.Errorf("resources of the status %v", r)
	}
}
