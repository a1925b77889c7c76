package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pod is a sandbox that a test has made.
type pod struct {
	*node
	id     string
	config *runtimeapi.PodSandboxConfig
	image  string
}

// number makes names that no other test has.
var number atomic.Int32

// sandboxConfig returns the configuration of a sandbox.
func (n *node) sandboxConfig() *runtimeapi.PodSandboxConfig {
	name := fmt.Sprintf("pod-%d", number.Add(1))
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "test"},
		Hostname: name, LogDirectory: n.path("logs/" + name),
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"test.local"}},
		Labels:    map[string]string{"app": "test", "pod": name}, Annotations: map[string]string{"note": "word by word\n"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/" + n.cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
				Pid: runtimeapi.NamespaceMode_CONTAINER,
			}},
		},
	}
}

// run makes a sandbox.
func (n *node) run(config *runtimeapi.PodSandboxConfig) *pod {
	n.Helper()
	r, err := n.RunPodSandbox(context.Background(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.Fatal(err)
	}
	return &pod{node: n, id: r.PodSandboxId, config: config}
}

// newPod starts a node, and makes a sandbox on it whose containers are of busybox's image.
func newPod(t *testing.T) *pod {
	t.Helper()
	n := newNode(t)
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/box:1", busybox(t, nil))
	p := n.run(n.sandboxConfig())
	p.image = n.pull(registry + "/box:1")
	return p
}

// script returns the configuration of a container that runs a shell's script.
func (p *pod) script(text string) *runtimeapi.ContainerConfig {
	name := fmt.Sprintf("c-%d", number.Add(1))
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: p.image},
		Command: []string{"sh", "-c", text}, LogPath: name + "/0.log",
		Labels: map[string]string{"container": name}, Annotations: map[string]string{"note": "container's"},
	}
}

func (p *pod) createContainer(config *runtimeapi.ContainerConfig) (string, error) {
	r, err := p.CreateContainer(context.Background(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	return r.GetContainerId(), err
}

// startNew makes and starts a container.
func (p *pod) startNew(config *runtimeapi.ContainerConfig) string {
	p.Helper()
	id, err := p.createContainer(config)
	if err == nil {
		_, err = p.StartContainer(context.Background(), &runtimeapi.StartContainerRequest{ContainerId: id})
	}
	if err != nil {
		p.Fatal(err)
	}
	return id
}

func (n *node) status(id string) *runtimeapi.ContainerStatus {
	n.Helper()
	r, err := n.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.Fatal(err)
	}
	return r.Status
}

// awaitExit waits until a container has ended.
func (n *node) awaitExit(id string) *runtimeapi.ContainerStatus {
	n.Helper()
	var status *runtimeapi.ContainerStatus
	if !surroundings.Eventually(n.T, "the container ends", func() bool {
		status = n.status(id)
		return status.State == runtimeapi.ContainerState_CONTAINER_EXITED
	}) {
		n.FailNow()
	}
	return status
}

// output returns what a container of the pod has written, without times.
func (p *pod) output(config *runtimeapi.ContainerConfig) string {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.config.LogDirectory, config.LogPath))
	if err != nil {
		p.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		words := strings.SplitN(line, " ", 4)
		if len(words) != 4 {
			p.Fatalf("line of log %q", line)
		}
		if words[2] == "P" { // the next line goes on with it
			words[3] = strings.TrimSuffix(words[3], "\n")
		}
		text.WriteString(words[3])
	}
	return text.String()
}

// do runs a script in a container of its own, and returns what the script has written.
func (p *pod) do(text string, edit func(*runtimeapi.ContainerConfig)) string {
	p.Helper()
	config := p.script(text)
	if edit != nil {
		edit(config)
	}
	if status := p.awaitExit(p.startNew(config)); status.ExitCode != 0 {
		p.Errorf("%s: %v", text, status)
	}
	return p.output(config)
}

func TestContainersLiveAndDie(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("echo out; echo err >&2; exit 3")
	id, err := p.createContainer(config)
	if err != nil {
		t.Fatal(err)
	}
	if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_CREATED || s.CreatedAt == 0 || s.StartedAt != 0 {
		t.Errorf("created: %v", s)
	}
	if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	s := p.awaitExit(id)
	if s.ExitCode != 3 || s.Reason != "Error" || s.FinishedAt < s.StartedAt || s.StartedAt < s.CreatedAt {
		t.Errorf("ended: %v", s)
	}
	if s.Annotations["note"] != "container's" || s.Labels["container"] != config.Metadata.Name || s.Metadata.Name != config.Metadata.Name || s.ImageId != p.image || !strings.Contains(s.ImageRef, "/box@sha256:") {
		t.Errorf("ended: %v", s)
	}
	if out := p.output(config); out != "out\nerr\n" && out != "err\nout\n" {
		t.Errorf("log %q", out)
	}
	if s := p.awaitExit(p.startNew(p.script("true"))); s.ExitCode != 0 || s.Reason != "Completed" {
		t.Errorf("true: %v", s)
	}
	missing := p.script("")
	missing.Command = []string{"/no/such/program"}
	id, err = p.createContainer(missing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a program that is missing was started")
	}
	if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 128 || s.Reason != "StartError" || !strings.Contains(s.Message, "/no/such/program") {
		t.Errorf("missing program: %v", s)
	}
}

func TestContainersShareTheirSandbox(t *testing.T) {
	p := newPod(t)
	show := "hostname; cat /etc/hostname; cat /etc/resolv.conf; ip -4 address show eth0 | grep -o 'inet [0-9.]*'; ls -l /proc/self/ns | grep -oE '(net|ipc|uts):.*'; touch /dev/shm/x; ls /dev/shm"
	first, second := p.do(show, nil), p.do(show, nil)
	if first != second {
		t.Errorf("one container sees\n%s\nanother\n%s", first, second)
	}
	status, err := p.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	ip := status.Status.Network.Ip
	for _, want := range []string{p.config.Hostname + "\n" + p.config.Hostname + "\n", "nameserver 192.0.2.1\n", "search test.local\n", "inet " + ip + "\n", "\nx\n"} {
		if ip == "" || !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	for _, kind := range []string{"net", "ipc", "uts"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil || strings.Contains(first, own) {
			t.Errorf("namespace %s (%v) is the host's", own, err)
		}
	}
}

func TestStopEndsContainersInTime(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	stop := func(id string, timeout int64) *runtimeapi.ContainerStatus {
		t.Helper()
		if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout}); err != nil {
			t.Fatal(err)
		}
		return p.status(id)
	}
	ready := func(config *runtimeapi.ContainerConfig) string {
		id := p.startNew(config)
		surroundings.Eventually(t, "the container is ready", func() bool { return strings.HasPrefix(p.output(config), "ready") })
		return id
	}
	if s := stop(ready(p.script("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done")), 60); s.ExitCode != 7 {
		t.Errorf("graceful: %v", s)
	}
	if s := stop(ready(p.script("trap '' TERM; echo ready; while :; do sleep 1; done")), 1); s.ExitCode != 137 {
		t.Errorf("stubborn: %v", s)
	}
	quit := p.script("trap 'exit 9' QUIT; echo ready; while :; do sleep 0.1; done")
	quit.StopSignal = runtimeapi.Signal_SIGNAL_SIGQUIT
	if s := stop(ready(quit), 60); s.ExitCode != 9 {
		t.Errorf("SIGQUIT: %v", s)
	}
	for _, id := range []string{"", "unknown", strings.Repeat("0", 64)} {
		if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if _, err := p.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
		if _, err := p.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	}
}
