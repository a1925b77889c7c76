package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/dockerregistry"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// killIn kills the server while it works on a call, after that time, and starts it again.
func (n *node) killIn(after time.Duration, call func()) {
	n.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	<-time.After(after)
	n.kill()
	<-done
	n.start()
}

// moments are when a server is killed: before, in and after a call of some tens of milliseconds.
func moments() []time.Duration {
	var all []time.Duration
	for _, ms := range []int{1, 20, 45, 90, 200} {
		all = append(all, time.Duration(ms)*time.Millisecond)
	}
	return all
}

// A server that was killed in the middle of a call does it when kubelet repeats it, and leaves nothing of the first try.
func TestServerIsKilledInCalls(t *testing.T) {
	p := newPod(t)
	ctx := context.Background()
	for _, moment := range moments() {
		sandbox := p.killedInRun(moment)
		sandbox.image = p.image
		id := sandbox.killedInCreate(moment)
		p.killIn(moment, func() {
			_, _ = p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		})
		switch s := p.status(id); s.State {
		case runtimeapi.ContainerState_CONTAINER_CREATED:
			if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
				t.Errorf("start after %s: %v", moment, err)
			}
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			if s.ExitCode != 128 || s.Reason != "StartError" {
				t.Errorf("start after %s: %v", moment, s)
			}
		}
		stop := func() error {
			_, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
			return err
		}
		p.killIn(moment, func() { _ = stop() })
		if err := stop(); err != nil {
			t.Errorf("stop after %s: %v", moment, err)
		}
		if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("stop after %s: %v", moment, s)
		}
		remove := func() error {
			_, err := p.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.id})
			return err
		}
		p.killIn(moment, func() { _ = remove() })
		if err := remove(); err != nil {
			t.Errorf("remove after %s: %v", moment, err)
		}
	}
	r, err := p.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(r.Items) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// killedInRun makes a sandbox in two tries, and checks that only one is listed.
func (p *pod) killedInRun(moment time.Duration) *pod {
	p.Helper()
	config := p.sandboxConfig()
	ctx, request := context.Background(), &runtimeapi.RunPodSandboxRequest{Config: config}
	p.killIn(moment, func() { _, _ = p.RunPodSandbox(ctx, request) })
	if _, err := p.RunPodSandbox(ctx, request); err != nil && !strings.Contains(err.Error(), "exists already") {
		p.Fatalf("run after %s: %v", moment, err)
	}
	r, err := p.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"pod": config.Metadata.Name},
	}})
	if err != nil || len(r.Items) != 1 || r.Items[0].State != runtimeapi.PodSandboxState_SANDBOX_READY {
		p.Fatalf("run after %s: %v, %v", moment, r, err)
	}
	return &pod{node: p.node, id: r.Items[0].Id, config: config}
}

// killedInCreate makes a container in two tries, and checks that only one is listed.
func (p *pod) killedInCreate(moment time.Duration) string {
	p.Helper()
	p.write(p.path("inner/file"), "inner\n")
	config := p.script("trap '' TERM; while :; do sleep 0.1; done")
	config.Mounts = []*runtimeapi.Mount{ // one inside the other, which the server composes
		{HostPath: p.path("inner"), ContainerPath: "/data"}, {HostPath: p.path("inner/file"), ContainerPath: "/data/file"},
	}
	p.killIn(moment, func() { _, _ = p.createContainer(config) })
	if _, err := p.createContainer(config); err != nil && !strings.Contains(err.Error(), "exists already") {
		p.Fatalf("create after %s: %v", moment, err)
	}
	r, err := p.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id},
	})
	if err != nil || len(r.Containers) != 1 {
		p.Fatalf("create after %s: %v, %v", moment, r, err)
	}
	return r.Containers[0].Id
}

func TestServerIsKilledInPulls(t *testing.T) {
	p := newPod(t)
	registry, _ := dockerregistry.Run(t)
	for i, moment := range moments() {
		ref := fmt.Sprintf("%s/pulled:%d", registry, i)
		push(t, ref, busybox(t, func(c *v1.Config) { c.Env = append(c.Env, fmt.Sprint("PULL=", i)) }))
		p.killIn(moment, func() {
			_, _ = p.PullImage(context.Background(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		})
		p.image = p.pull(ref)
		if got := p.do("echo $PULL", nil); got != fmt.Sprintln(i) {
			t.Errorf("pull after %s: %q", moment, got)
		}
	}
}

// A server that was killed while it deleted a pod, or made one, leaves a folder that no list has.
func TestFoldersOfPodsThatWereKilledAreRemoved(t *testing.T) {
	n := newNode(t)
	n.kill()
	n.write(n.path("state/pods/0a1b2c3d-0000-4000-8000-000000000001/root/tmp/file"), "half deleted")
	n.write(n.path("state/pods/0a1b2c3d-0000-4000-8000-000000000002/lock"), "")
	n.start() // the test's end looks for them
}
