package tests

import (
	"fmt"
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

// isUnified reports whether the machine has cgroup v2 alone.
func isUnified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// version returns the value for the machine's version of cgroups.
func version[T any](v1, v2 T) T {
	if isUnified() {
		return v2
	}
	return v1
}

// cgroupFile returns the path of a file of a cgroup: in version 1 in the controller's hierarchy.
func cgroupFile(cgroup, controller, v1, v2 string) string {
	return version(filepath.Join("/sys/fs/cgroup", controller, cgroup, v1), filepath.Join("/sys/fs/cgroup", cgroup, v2))
}

// group returns a container's own cgroup, or one below it.
func (p *pod) group(id, below string) string {
	p.Helper()
	return filepath.Join(p.cgroup, "kurma-"+p.id, p.podOf(id), below)
}

// The files of cgroups which have these limits.

func sharesFile(cgroup string) string { return cgroupFile(cgroup, "cpu", "cpu.shares", "cpu.weight") }

func cpusFile(cgroup string) string {
	return cgroupFile(cgroup, "cpuset", "cpuset.cpus", "cpuset.cpus.effective")
}

func memoryFile(cgroup string) string {
	return cgroupFile(cgroup, "memory", "memory.limit_in_bytes", "memory.max")
}

func swapFile(cgroup string) string {
	return cgroupFile(cgroup, "memory", "memory.memsw.limit_in_bytes", "memory.swap.max")
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
	if _, err := os.Stat(cgroupFile(filepath.Join(p.cgroup, "kurma-"+p.id), "memory", "", "")); err != nil {
		t.Errorf("the sandbox's cgroup, which says what can be limited, has ended with its containers: %v", err)
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

// kubelet can be told another period of the CPU quota than the kernel's, below the pod's own quota.
func TestTheQuotaHasItsPeriod(t *testing.T) {
	p := newPod(t)
	for _, period := range []int64{10_000, 500_000} {
		id := p.startNew(p.limited("sleep 1000", &runtimeapi.LinuxContainerResources{CpuQuota: 2 * period, CpuPeriod: period}))
		app := p.group(id, "apps/"+p.status(id).Metadata.Name)
		if isUnified() {
			p.wantFile(cgroupFile(app, "cpu", "", "cpu.max"), fmt.Sprint(2*period, " ", period))
			continue
		}
		p.wantFile(cgroupFile(app, "cpu", "cpu.cfs_quota_us", ""), fmt.Sprint(2*period))
		p.wantFile(cgroupFile(app, "cpu", "cpu.cfs_period_us", ""), fmt.Sprint(period))
	}
}

// The shares of two containers count between these, and a limit that is raised is no longer that of the start.
func TestLimitsAreThoseOfTheContainer(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	outer := memoryFile(p.cgroup)
	p.write(outer, "209715200")
	id := p.startNew(p.limited("sleep 1000", &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpusetCpus: "0", MemoryLimitInBytes: 100 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
	}))
	p.wantFile(sharesFile(p.group(id, "")), version("512", "59"))
	p.wantFile(cpusFile(p.group(id, "")), "0")
	p.write(outer, "419430400")
	for range 2 {
		if _, err := p.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{
			CpuShares: 2048, CpusetCpus: "1", MemoryLimitInBytes: 300 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p.wantFile(sharesFile(p.group(id, "")), version("2048", "174"))
	for _, below := range []string{"", "apps", "apps/" + p.status(id).Metadata.Name} {
		p.wantFile(cpusFile(p.group(id, below)), "1")
	}
	p.wantFile(memoryFile(p.group(id, "apps")), version("9223372036854771712", "max"))
	p.wantFile(memoryFile(p.group(id, "apps/"+p.status(id).Metadata.Name)), "314572800")
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
		p.wantFile(sharesFile(p.group(id, below)), version("512", "59"))
		p.wantFile(cpusFile(p.group(id, below)), "0")
	}
	if r := p.status(id).Resources.Linux; r.CpuShares != 512 || r.CpusetCpus != "0" {
		t.Errorf("resources of the status %v", r)
	}
}
