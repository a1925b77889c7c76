package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A person sees without other programs whether the node is ready, and why not.
func TestStatusCommand(t *testing.T) {
	n := newNode(t)
	text, err := n.command("status").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(text), ": CRI v1\nRuntimeReady: yes\nNetworkReady: yes\n") {
		t.Errorf("%v, %s", err, text)
	}
	n.rename(n.path("net.d"), n.path("other"))
	text, err = n.command("status").CombinedOutput()
	want := fmt.Sprintf("NetworkReady: no: no CNI configuration (*.conflist, *.conf, *.json) in %s\nkurma-cri: this node cannot run pods\n", n.path("net.d"))
	if err == nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("%v, %s, want %s", err, text, want)
	}
	n.kill()
	text, err = n.command("status").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(text), "kurma-cri: ask server: ") || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%v, %s", err, text)
	}
	n.start()
}

// Remove-all leaves nothing of a node's pods, and is refused while a server runs.
func TestRemoveAllCommand(t *testing.T) {
	p := newPod(t)
	p.startNew(p.script("trap '' TERM; while :; do sleep 0.1; done"))
	p.startNew(p.script("exit 3"))
	other := p.run(p.sandboxConfig())
	text, err := p.command("remove-all").CombinedOutput()
	if want := "kurma-cri: make socket: another server serves " + p.path("cri.sock") + "\n"; err == nil || string(text) != want {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
	if r, err := p.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: other.id}); err != nil || r.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox: %v, %v", r, err)
	}
	p.kill()
	if text, err := p.command("remove-all").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	p.nothingIsLeft()
	if text, err := p.command("remove-all").CombinedOutput(); err != nil {
		t.Errorf("again: %v\n%s", err, text)
	}
	p.start()
	if r, err := p.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{}); err != nil || len(r.Containers) > 0 {
		t.Errorf("%v, %v", r, err)
	}
}
