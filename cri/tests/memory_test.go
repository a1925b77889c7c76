package tests

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podLimit is the limit of memory of kubelet's cgroup, in bytes. The stagers in it use a fifth.
const podLimit = 48 << 20

// smallProcesses fills the memory with processes that are smaller than the stager, and larger than the app's first one.
// The kernel has to kill many.
const smallProcesses = `(x=$(dd if=/dev/zero bs=1024 count=500 2>/dev/null | tr '\0' x); i=0
		while [ $i -lt 200 ]; do (x=$x$x; sleep 1000; echo $x) & i=$((i+1)); done; wait) &
	while :; do sleep 1000; done`

// Small processes fill kubelet's cgroup: the kernel kills them, and no container's stager.
func TestHostileSmallProcessesSpareTheStagers(t *testing.T) {
	newPod(t).floods(smallProcesses, podLimit)
}

// With the overhead that docs/kubernetes.md recommends for a stager, that is so whatever score the app gives itself.
func TestHostileSmallProcessesOfTheStagersScore(t *testing.T) {
	newPod(t).floods("echo 0 >/proc/self/oom_score_adj; "+smallProcesses, podLimit+32<<20)
}

// floods runs a script in a container that may use podLimit, where kubelet's cgroup has a limit, and checks that no
// stager is killed.
func (p *pod) floods(script string, limit int) {
	p.Helper()
	p.write(memoryFile(p.cgroup), fmt.Sprint(limit))
	neighbour := p.startNew(p.script("sleep 1000"))
	id := p.startNew(p.limited(script, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: podLimit, OomScoreAdj: -997}))
	app := p.group(id, "apps/"+p.status(id).Metadata.Name)
	surroundings.Eventually(p.T, "the kernel has killed many processes", func() bool {
		return p.oomKills(app) >= 20 || p.status(id).State != runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	p.withstands()
	for _, id := range []string{neighbour, id} {
		if group, err := cgroups.Open(p.group(id, "")); err != nil || group.OOMKilled(names.LeafCgroup) {
			p.Errorf("the kernel has killed a stager, %v", err)
		}
		if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			p.Errorf("%s: %d, %s: %s", s.State, s.ExitCode, s.Reason, s.Message)
		}
	}
}

// The end of a container whose stager the kernel kills all the same is told as what it was.
func TestTheKillOfAStagerForItsMemoryIsTold(t *testing.T) {
	p := newPod(t)
	p.write(memoryFile(p.cgroup), fmt.Sprint(podLimit))
	id := p.startNew(p.script("until [ -e /go ]; do sleep 0.1; done; " + smallProcesses))
	group, err := cgroups.Open(p.group(id, ""))
	if err != nil {
		t.Fatal(err)
	}
	all, err := group.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	apps, err := group.PIDsBelow(names.AppsCgroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range all {
		if slices.Contains(apps, pid) {
			continue
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"touch", "/go"}}); err != nil {
		t.Fatal(err)
	}
	s := p.awaitExit(id)
	if s.ExitCode != 137 || s.Reason != "OOMKilled" || !strings.HasPrefix(s.Message, "the stager was ended") {
		t.Errorf("%d, %s: %s", s.ExitCode, s.Reason, s.Message)
	}
}

// oomKills returns how many processes of a cgroup the kernel has killed.
func (p *pod) oomKills(cgroup string) int {
	p.Helper()
	text, _ := os.ReadFile(cgroupFile(cgroup, "memory", "memory.oom_control", "memory.events.local")) // none after its end
	kills := 0
	if _, count, found := strings.Cut(string(text), "oom_kill "); found {
		if _, err := fmt.Sscan(count, &kills); err != nil {
			p.Fatal(err)
		}
	}
	return kills
}
