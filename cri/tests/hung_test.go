package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/surroundings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hungFolder mounts a file system whose server never answers, as one of the network may be. Close ends it.
func hungFolder(t *testing.T, path string) (end func()) {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
	if err := unix.Mount("test", path, "fuse", 0, options); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := device.Close(); err != nil { // which fails all that waits
			t.Error(err)
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}

// A mount's file system that does not answer holds up its own container alone: others of the pod are stopped, images
// are removed.
func TestAHungFileSystemHoldsUpItsContainerAlone(t *testing.T) {
	p := newPod(t)
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/other:1", busybox(t, func(c *v1.Config) { c.User = "7" }))
	other := p.pull(registry + "/other:1")
	defer hungFolder(t, p.path("hung"))()
	config := p.script("true")
	config.Mounts = []*runtimeapi.Mount{{HostPath: p.path("hung/volume"), ContainerPath: "/volume"}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if _, err := p.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: other}}); err != nil {
		t.Error(err)
	}
	if _, err := p.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	if _, err := p.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
}

// A sandbox whose cgroup is frozen, or gets no processor, holds up the start of its own container alone: no process of
// the server's is in it (vfork(2) stops the parent until the child's execve).
func TestAFrozenSandboxHoldsUpNoOther(t *testing.T) {
	p := newPod(t)
	other := p.run(p.sandboxConfig())
	other.image = p.image
	id := other.startNew(other.script("sleep 1000"))
	frozen, err := p.createContainer(p.script("true"))
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(p.cgroup, "kurma-"+p.id)
	freezer := cgroupFile(group, "freezer", "freezer.state", "cgroup.freeze")
	write := func(state string) {
		t.Helper()
		if err := os.WriteFile(freezer, []byte(state), 0); err != nil {
			t.Fatal(err)
		}
	}
	write(version("FROZEN", "1"))
	defer write(version("THAWED", "0"))
	started := make(chan error, 1)
	go func() {
		_, err := p.StartContainer(context.Background(), &runtimeapi.StartContainerRequest{ContainerId: frozen})
		started <- err
	}()
	surroundings.Eventually(t, "a process starts in the frozen cgroup", func() bool {
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(freezer), "*-*-*", "cgroup.procs"))
		return slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && len(text) > 0
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	defer cancel()
	for range 10 {
		if _, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}}); err != nil {
			t.Error(err)
		}
		if _, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-started:
		t.Errorf("it starts in a frozen cgroup: %v", err)
	default:
	}
	write(version("THAWED", "0"))
	if err := <-started; err != nil {
		t.Error(err)
	}
}
