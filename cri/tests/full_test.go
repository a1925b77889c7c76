package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// newSmallNode starts a node whose state is on a file system of its own, which a symbolic link leads to.
func newSmallNode(t *testing.T) (n *node, state string) {
	t.Helper()
	state = t.TempDir()
	if err := unix.Mount("state", state, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) }) // after the node's end
	n = newNode(t)
	n.kill()
	err := os.RemoveAll(n.path("state"))
	if err = errors.Join(err, os.Symlink(state, n.path("state"))); err != nil {
		t.Fatal(err)
	}
	n.start()
	return n, state
}

// leave fills a file system but for that many bytes; free undoes it.
func leave(t *testing.T, dir string, bytes int) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filling")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	info, statErr := file.Stat()
	if !errors.Is(err, unix.ENOSPC) || statErr != nil {
		t.Fatalf("%v, %v", err, statErr)
	}
	if err := file.Truncate(max(0, info.Size()-int64(bytes))); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// On a full disk calls fail in one line, and what they have made can be removed, or is not there.
func TestAFullDiskLeavesNothing(t *testing.T) {
	n, state := newSmallNode(t)
	ctx := t.Context()
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/box:1", busybox(t, nil))
	image := n.pull(registry + "/box:1")
	oneLine := func(what string, err error) {
		t.Helper()
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q", what, err)
		}
	}
	failed := 0
	for pages := range 12 {
		free := leave(t, state, pages*4096)
		config := n.sandboxConfig()
		_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		oneLine("sandbox", err)
		if err != nil {
			failed++
		}
		free()
		if err != nil {
			if _, err = n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config}); err != nil {
				t.Errorf("with %d pages, repeated: %v", pages, err)
			}
		}
	}
	if failed == 0 {
		t.Error("the disk was not full")
	}
	p := n.run(n.sandboxConfig())
	p.image = image
	for pages := range 20 {
		free := leave(t, state, pages*4096)
		id, err := p.createContainer(p.script("true"))
		oneLine("container", err)
		if err == nil {
			_, err = p.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			oneLine(fmt.Sprintf("start with %d pages", pages), err)
		}
		free()
	}
	if s := p.awaitExit(p.startNew(p.script("exit 3"))); s.ExitCode != 3 {
		t.Errorf("when there is room again: %v", s)
	}
}

// A full disk prevents no sandbox from ending, not even one that gives no space back when it stops: kubelet could not
// make room.
func TestAFullDiskPreventsNoEnd(t *testing.T) {
	n, state := newSmallNode(t)
	ctx := t.Context()
	stop := func(id string) error {
		_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		return err
	}
	remove := func(id string) error {
		_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	}
	ofHost := func() string {
		config := n.sandboxConfig()
		config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE,
		}
		return n.run(config).id
	}
	stopped, removed, own := ofHost(), ofHost(), n.run(n.sandboxConfig()).id
	defer leave(t, state, 0)()
	if err := errors.Join(stop(stopped), remove(removed), stop(own)); err != nil {
		t.Error(err)
	}
	for range 2 {
		r, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(r.Items) != 2 {
			t.Fatalf("%v, %v", r, err)
		}
		for _, s := range r.Items {
			if s.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("stopped, but %v", s)
			}
		}
		n.kill()
		n.start()
	}
	if err := errors.Join(stop(stopped), remove(stopped), remove(own)); err != nil {
		t.Error(err)
	}
}
