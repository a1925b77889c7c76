package tests

import (
	"context"
	"strings"
	"sync"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A server that was killed and started again knows everything, and the containers have run on.
func TestKilledServerFindsEverythingAgain(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.1; done")
	running, ended := p.startNew(config), p.startNew(p.script("exit 5"))
	p.awaitExit(ended)
	created, err := p.createContainer(p.script("exit 6"))
	if err != nil {
		t.Fatal(err)
	}
	before := p.status(running)
	p.kill()
	p.start()
	listed, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]runtimeapi.ContainerState)
	for _, c := range listed.Containers {
		states[c.Id] = c.State
	}
	if len(states) != 3 || states[running] != runtimeapi.ContainerState_CONTAINER_RUNNING || states[ended] != runtimeapi.ContainerState_CONTAINER_EXITED || states[created] != runtimeapi.ContainerState_CONTAINER_CREATED {
		t.Errorf("states %v", states)
	}
	if after := p.status(running); after.StartedAt != before.StartedAt {
		t.Errorf("started at %d, then at %d", before.StartedAt, after.StartedAt)
	}
	if s := p.status(ended); s.ExitCode != 5 {
		t.Errorf("ended: %v", s)
	}
	if _, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created}); err != nil {
		t.Error(err)
	}
	if s := p.awaitExit(created); s.ExitCode != 6 {
		t.Errorf("started later: %v", s)
	}
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: running, Timeout: 60}); err != nil {
		t.Error(err)
	}
	if s, out := p.status(running), p.output(config); s.ExitCode != 4 || out != "up\nbye\n" {
		t.Errorf("stopped: %v, log %q", s, out)
	}
	if image, err := p.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: p.image}}); err != nil || image.Image == nil {
		t.Errorf("image: %v, %v", image, err)
	}
}

// The next server finds how containers have ended while none ran: an app whose stager has gone on to its end has its own
// exit code.
func TestContainersEndWhileNoServerRuns(t *testing.T) {
	p := newPod(t)
	asked := p.startNew(p.script("trap 'exit 4' TERM; while :; do sleep 0.1; done"))
	killed := p.startNew(p.script("sleep 1000"))
	signals := map[int]unix.Signal{p.stagerOf(asked): unix.SIGTERM, p.stagerOf(killed): unix.SIGKILL}
	p.kill()
	for stager, signal := range signals {
		pidfd, err := unix.PidfdOpen(stager, 0)
		if err == nil {
			err = unix.PidfdSendSignal(pidfd, signal, nil, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pidfd)
		ended := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ended, int(surroundings.Patience.Milliseconds())); n != 1 {
			t.Fatalf("the stager goes on after %s: %v", signal, err)
		}
	}
	p.start()
	for id, code := range map[string]int32{asked: 4, killed: 137} {
		if s := p.awaitExit(id); s.ExitCode != code || s.FinishedAt <= s.StartedAt {
			t.Errorf("%v, want exit code %d", s, code)
		}
	}
}

// A server that is killed while it makes or removes a record leaves a folder without one, which the next server removes.
func TestFoldersWithoutARecordAreRemoved(t *testing.T) {
	n := newNode(t)
	n.kill()
	for _, kind := range []string{"sandboxes", "containers"} {
		n.write(n.path("state/"+kind+"/"+strings.Repeat("a", 64)+"/hosts"), "")
	}
	n.start()
	n.nothingIsLeft()
}

func TestThirtySandboxesAtOnce(t *testing.T) {
	p := newPod(t)
	const many = 30
	configs := make([]*runtimeapi.PodSandboxConfig, many)
	for i := range configs {
		configs[i] = p.sandboxConfig()
	}
	addresses := make(chan string, many)
	var all sync.WaitGroup
	for _, config := range configs {
		all.Go(func() {
			ctx := context.Background()
			r, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			if err != nil {
				t.Error(err)
				return
			}
			status, err := p.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: r.PodSandboxId})
			if err != nil {
				t.Error(err)
				return
			}
			addresses <- status.Status.Network.Ip
		})
	}
	all.Wait()
	close(addresses)
	seen := make(map[string]bool)
	for ip := range addresses {
		seen[ip] = true
	}
	if len(seen) != many {
		t.Errorf("%d addresses", len(seen))
	}
}

// A call that is wrong is refused, in one line, and changes nothing.
func TestWrongCallsAreRefused(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	container := func(edit func(*runtimeapi.ContainerConfig)) func() error {
		return func() error {
			config := p.script("true")
			config.Linux = &runtimeapi.LinuxContainerConfig{
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
				Resources:       &runtimeapi.LinuxContainerResources{},
			}
			edit(config)
			_, err := p.createContainer(config)
			return err
		}
	}
	for name, test := range map[string]struct {
		call func() error
		want string
	}{
		"sandbox without metadata": {func() error { _, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{}); return err }, "metadata"},
		"sandbox twice": {func() error {
			_, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
			return err
		}, "exists already"},
		"unknown handler": {func() error {
			_, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandboxConfig(), RuntimeHandler: "other"})
			return err
		}, `handler "other"`},
		"sysctl of the machine": {func() error {
			config := p.sandboxConfig()
			config.Linux.Sysctls = map[string]string{"kernel.panic": "1"}
			_, err := p.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			return err
		}, "kernel.panic"},
		"unknown sandbox": {func() error {
			_, err := p.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: strings.Repeat("0", 64), Config: p.script("true")})
			return err
		}, "not found"},
		"unknown container": {func() error {
			_, err := p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: "../../x"})
			return err
		}, "not found"},
		"image that is not there": {container(func(c *runtimeapi.ContainerConfig) { c.Image.Image = "no/such:1" }), "no such image"},
		"no command":              {container(func(c *runtimeapi.ContainerConfig) { c.Command = []string{""} }), "without a command"},
		"source below a file": {container(func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/dev/null/such", ContainerPath: "/x"}}
		}), "/dev/null/such"},
		"relative target": {container(func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "x"}}
		}), "relative mount target"},
		"mount over /proc": {container(func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "/proc/x"}}
		}), "/proc"},
		"PID namespace of no container": {container(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid, c.Linux.SecurityContext.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, "x"
		}), "PID namespace"},
		"unknown capability": {container(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"FLY"}}
		}), `"FLY"`},
		"seccomp of a file": {container(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/no/such.json"}
		}), "seccomp"},
		"huge pages": {container(func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "3MB", Limit: 1 << 21}}
		}), "huge pages"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.call()
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, test.want)
			}
		})
	}
	listed, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(listed.Containers) != 0 {
		t.Errorf("%v, %v", listed, err)
	}
}
