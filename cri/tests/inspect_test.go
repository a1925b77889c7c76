package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fact returns a part of a verbose answer.
func fact[T any](t *testing.T, info map[string]string, key string) (part T) {
	t.Helper()
	if err := json.Unmarshal([]byte(info[key]), &part); err != nil {
		t.Fatalf("%q: %v", info, err)
	}
	return part
}

// Scripts on a node find an app's process and its network by crictl inspect and inspectp, under the keys that containerd
// has for them.
func TestScriptsFindProcessesAndNetworks(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("exec sleep 4322"))
	type facts struct {
		SandboxID   string
		PID         int
		RuntimeSpec struct {
			Linux struct{ Namespaces []struct{ Type, Path string } }
		}
	}
	inspect := func() facts {
		t.Helper()
		r, err := p.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		return fact[facts](t, r.Info, "info")
	}
	inspectp := func() facts {
		t.Helper()
		r, err := p.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		return fact[facts](t, r.Info, "info")
	}
	container, sandbox := inspect(), inspectp()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", container.PID))
	if err != nil || string(line) != "sleep\x004322\x00" || container.SandboxID != p.id || sandbox.PID != container.PID {
		t.Errorf("%q, %v; %+v and %+v", line, err, container, sandbox)
	}
	kinds := map[string]string{"network": "net", "ipc": "ipc", "uts": "uts"}
	for _, n := range sandbox.RuntimeSpec.Linux.Namespaces {
		pin, err1 := os.Stat(n.Path)
		own, err2 := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", container.PID, kinds[n.Type]))
		if err1 != nil || err2 != nil || !os.SameFile(pin, own) {
			t.Errorf("%s: %v, %v", n.Type, err1, err2)
		}
		delete(kinds, n.Type)
	}
	if diff := cmp.Diff(map[string]string{}, kinds); diff != "" {
		t.Error("without pins: " + diff)
	}
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if container, sandbox := inspect(), inspectp(); container.PID != 0 || sandbox.PID != 0 {
		t.Errorf("stopped: %+v and %+v", container, sandbox)
	}
	image, err := p.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: p.image}, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	if found := fact[struct{ Manifest struct{ ACKind string } }](t, image.Info, "info"); found.Manifest.ACKind != "ImageManifest" {
		t.Errorf("image: %+v", found)
	}
	status, err := p.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	if config := fact[struct{ State string }](t, status.Info, "config"); config.State != p.path("state") {
		t.Errorf("configuration: %+v", config)
	}
}
