package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A file with one plugin's configuration is a network as well.
func TestNetworkOfOnePlugin(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	if err := os.Remove(n.path("net.d/10-bridge.conflist")); err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]string{"20-one.conf": `"cniVersion": "1.0.0", `, "10-one.json": ""} {
		n.write(n.path("net.d/"+name), fmt.Sprintf(`{%s"name": "one", "type": "bridge", "bridge": "one0", "isGateway": true,
			"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.0.0/16"}]], "dataDir": %q}}`, version, n.path("ipam")))
		p := n.run(n.sandboxConfig())
		r, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err != nil || !strings.HasPrefix(r.Status.Network.Ip, "10.97.") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Error(err)
		}
	}
	n.write(n.path("net.d/05-list.conf"), `{"name": "list", "plugins": []}`)
	r, err := n.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil || !strings.Contains(r.Status.Conditions[1].Message, "05-list.conf: no type of a plugin") {
		t.Errorf("%v, %v", r, err)
	}
}
