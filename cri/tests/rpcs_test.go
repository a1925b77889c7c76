package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// receive returns how many items a stream has.
func receive[M any](t *testing.T, stream grpc.ServerStreamingClient[M], err error, items func(*M) int) (total int) {
	t.Helper()
	for err == nil {
		var part *M
		if part, err = stream.Recv(); err == nil {
			total += items(part)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return total
}

// kubelet of today asks for lists as streams: these have what the lists have.
func TestStreamsHaveWhatListsHave(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	p.startNew(p.script("sleep 1000"))
	p.awaitExit(p.startNew(p.script("true")))
	sandboxes, err := p.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
	if n := receive(t, sandboxes, err, func(m *runtimeapi.StreamPodSandboxesResponse) int { return len(m.PodSandboxes) }); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	containers, err := p.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	if n := receive(t, containers, err, func(m *runtimeapi.StreamContainersResponse) int { return len(m.Containers) }); n != 2 {
		t.Errorf("%d containers", n)
	}
	used, err := p.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{})
	if n := receive(t, used, err, func(m *runtimeapi.StreamContainerStatsResponse) int { return len(m.ContainerStats) }); n != 1 {
		t.Errorf("statistics of %d containers", n)
	}
	usedByPods, err := p.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{})
	if n := receive(t, usedByPods, err, func(m *runtimeapi.StreamPodSandboxStatsResponse) int { return len(m.PodSandboxStats) }); n != 1 {
		t.Errorf("statistics of %d sandboxes", n)
	}
	images, err := p.StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
	if n := receive(t, images, err, func(m *runtimeapi.StreamImagesResponse) int { return len(m.Images) }); n != 1 {
		t.Errorf("%d images", n)
	}
}

func TestStatsOfASandbox(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	r, err := p.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Stats
	if s.Attributes.Id != p.id || len(s.Linux.Containers) != 1 || s.Linux.Containers[0].Attributes.Id != id || s.Linux.Memory.WorkingSetBytes.GetValue() == 0 {
		t.Errorf("%v", s)
	}
	if _, err := p.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "unknown"}); err == nil {
		t.Error("statistics of no sandbox")
	}
}

// kubelet makes these calls, and what they say is known already.
func TestUpdatesThatChangeNothing(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	if _, err := p.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.1.0.0/16"}},
	}); err != nil {
		t.Error(err)
	}
	if _, err := p.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 100},
	}); err != nil {
		t.Error(err)
	}
}

func TestStopAndRemoveMayBeRepeated(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	for range 2 {
		if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
	}
	if s := p.status(id); s.ExitCode != 137 {
		t.Errorf("%v", s)
	}
	for range 2 {
		if _, err := p.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Error(err)
		}
	}
	// Its /dev/shm is memory.
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), p.id) {
		t.Errorf("a sandbox that is stopped has mounts (%v):\n%s", err, mounts)
	}
	for range 2 {
		if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if _, err := p.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Error(err)
		}
	}
}

// A port of the host leads to the pod until the pod is removed.
func TestPortsOfTheHost(t *testing.T) {
	p := newPod(t)
	list := p.path("net.d/10-bridge.conflist")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	p.write(list, strings.TrimSuffix(string(text), "]}")+`, {"type": "portmap", "capabilities": {"portMappings": true}}]}`)
	config := p.sandboxConfig()
	config.PortMappings = []*runtimeapi.PortMapping{{HostPort: 17777, ContainerPort: 7777, Protocol: runtimeapi.Protocol_TCP}}
	other := p.run(config)
	other.image = p.image
	other.startNew(other.script("while :; do echo hello | nc -l -p 7777; done"))
	const address = "10.99.0.1:17777" // the bridge's, of this machine
	p.answers(address)
	if _, err := p.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: other.id}); err != nil {
		t.Error(err)
	}
	if connection, err := net.DialTimeout("tcp", address, surroundings.Patience); err == nil {
		_ = connection.Close()
		t.Error("the port is still there")
	}
}

// answers waits until a server at the address says hello.
func (n *node) answers(address string) {
	n.Helper()
	surroundings.Eventually(n.T, "the port answers", func() bool {
		connection, err := net.DialTimeout("tcp", address, surroundings.Patience)
		if err != nil {
			return false
		}
		defer connection.Close()
		got := make([]byte, len("hello\n"))
		_, err = io.ReadFull(connection, got)
		return err == nil && string(got) == "hello\n"
	})
}

func TestThirtyPodsAreRemovedAtOnce(t *testing.T) {
	p := newPod(t)
	const many = 30
	ctx := context.Background()
	atOnce := func(do func(i int) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	pods := make([]*pod, many)
	for i := range pods {
		pods[i] = &pod{node: p.node, image: p.image, config: p.sandboxConfig()}
	}
	atOnce(func(i int) error {
		r, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pods[i].config})
		if err != nil {
			return err
		}
		pods[i].id = r.PodSandboxId
		id, err := pods[i].createContainer(pods[i].script("sleep 1000"))
		if err == nil {
			_, err = p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		}
		return err
	})
	listed, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil || len(listed.Containers) != many {
		t.Errorf("%d containers run, %v", len(listed.GetContainers()), err)
	}
	atOnce(func(i int) error {
		_, err := p.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pods[i].id})
		if err != nil {
			err = fmt.Errorf("sandbox %d: %w", i, err)
		}
		return err
	})
}
