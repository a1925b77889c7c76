package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// newKurmaNode starts a node whose sandboxes are connected by Kurma's networks, of which the returned function writes
// one: from then on the next server has it.
func newKurmaNode(t *testing.T) (n *node, write func(name, keys string)) {
	t.Helper()
	n = newNode(t)
	n.kill()
	stager := environment(t, "STAGER_ACI")
	plugin := filepath.Join(filepath.Dir(stager), "cni-netplugin.aci")
	n.writeConfig(map[string]any{
		"containerNetworksDirectory": n.path("networks.d"), "trustedKeys": []string{stager + ".pub", plugin + ".pub"},
	})
	n.start()
	t.Cleanup(n.stopPlugins)
	return n, func(name, keys string) {
		n.write(n.path("networks.d/"+name+".json"), fmt.Sprintf(`{"name": %q, "aci": "file://%s", "containerInterface": "eth{{num}}",
			"cniVersion": "1.0.0", %s}`, name, plugin, keys))
	}
}

// again kills the server and starts the next.
func (n *node) again() {
	n.kill()
	n.start()
}

// networkReady returns the reason why the network is not ready.
func (n *node) networkReady() string {
	n.Helper()
	r, err := n.Status(n.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		n.Fatal(err)
	}
	return r.Status.Conditions[1].Message
}

// stopPlugins ends the networks' plugins, as the removal of a node does, and starts the server again.
func (n *node) stopPlugins() {
	n.Helper()
	n.kill()
	if text, err := n.command("remove-all").CombinedOutput(); err != nil {
		n.Errorf("%v\n%s", err, text)
	}
	if pods, err := filepath.Glob(n.path("state/networks/pods/*-*")); err != nil || len(pods) > 0 {
		n.Errorf("plugins run: %v, %v", pods, err)
	}
	n.start()
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %s", args, out)
	}
	return string(out)
}

// Two networks connect a sandbox in order and publish its port; what the server does after it was killed disconnects
// the sandbox.
func TestKurmasNetworksConnectSandboxes(t *testing.T) {
	n, write := newKurmaNode(t)
	ctx := t.Context()
	folder := n.path("networks.d")
	if got, want := n.networkReady(), fmt.Sprintf(`no network in %s has "default": true`, folder); got != want {
		t.Errorf("not ready: %q, want %q", got, want)
	}
	const ipam = `"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.%d.0.0/16"}]]}`
	write("20-second", `"default": true, "type": "ptp", `+fmt.Sprintf(ipam, 96))
	write("10-first", `"default": true, "plugins": [{"type": "bridge", "bridge": "kurma0", "isGateway": true, `+fmt.Sprintf(ipam, 95)+`}]`)
	write("30-other", `"type": "none"`)
	n.again()
	if reason := n.networkReady(); reason != "" {
		t.Errorf("not ready: %s", reason)
	}
	config := n.sandboxConfig()
	config.PortMappings = []*runtimeapi.PortMapping{{HostPort: 17778, ContainerPort: 7777}}
	_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if want := "hostPort 17778: no network in " + folder + " publishes ports"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	write("10-first", `"default": true, "plugins": [{"type": "bridge", "bridge": "kurma0", "isGateway": true, `+fmt.Sprintf(ipam, 95)+`},
		{"type": "portmap", "capabilities": {"portMappings": true}}]`)
	n.again()

	p := n.run(config)
	r, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil || !strings.HasPrefix(r.Status.Network.Ip, "10.95.") || len(r.Status.Network.AdditionalIps) != 1 ||
		!strings.HasPrefix(r.Status.Network.AdditionalIps[0].Ip, "10.96.") {
		t.Errorf("%v, %v", r, err)
	}
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/box:1", busybox(t, nil))
	p.image = n.pull(registry + "/box:1")
	p.startNew(p.script("while :; do echo hello | nc -l -p 7777; done"))
	p.answers("10.95.0.1:17778")
	n.again()
	p.answers("10.95.0.1:17778") // the sandbox and the plugins outlive the server
	// Another entry is another plugin container, which leaves the sandbox its address and its port.
	write("10-first", `"default": true, "plugins": [{"type": "bridge", "bridge": "kurma0", "isGateway": true, "mtu": 1400, `+fmt.Sprintf(ipam, 95)+`},
		{"type": "portmap", "capabilities": {"portMappings": true}}]`)
	n.again()
	other := n.run(n.sandboxConfig())
	p.answers("10.95.0.1:17778")
	if left, err := filepath.Glob(n.path("state/networks/10-first/run/cni/networks/10-first/10.*")); err != nil || len(left) != 2 {
		t.Errorf("addresses of two sandboxes: %v, %v", left, err)
	}
	if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: other.id}); err != nil {
		t.Error(err)
	}
	if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	for _, network := range []string{"10-first", "20-second"} {
		if left, err := filepath.Glob(n.path("state/networks/" + network + "/run/cni/networks/" + network + "/10.*")); err != nil || len(left) > 0 {
			t.Errorf("addresses %v, %v", left, err)
		}
	}
	if links := ip(t, "link", "show", "type", "veth"); links != "" {
		t.Errorf("left:\n%s", links)
	}
	ip(t, "link", "delete", "kurma0") // the network is still in the configuration
}

// A plugin that fails leaves nothing, and says why in one line. A server of another configuration disconnects what the
// one before has connected.
func TestKurmasNetworksThatFailLeaveNothing(t *testing.T) {
	n, write := newKurmaNode(t)
	ctx := t.Context()
	write("good", `"default": true, "type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.94.0.0/30"}]]}`)
	n.again()
	p := n.run(n.sandboxConfig()) // takes the only address
	_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: n.sandboxConfig()})
	if err == nil || !strings.Contains(err.Error(), `connect to network "good": add: exit status`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	n.wantSandbox(runtimeapi.PodSandboxState_SANDBOX_READY)

	n.kill()
	n.writeConfig(map[string]any{}) // CNI's
	n.start()
	if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	if links := ip(t, "link", "show", "type", "veth"); links != "" {
		t.Errorf("left:\n%s", links)
	}
	n.kill()
	n.writeConfig(map[string]any{"containerNetworksDirectory": n.path("networks.d")})
	write("good", `"runtimeConfig": {}`)
	text, err := n.command().CombinedOutput()
	if want := n.path("networks.d/good.json") + ": "; err == nil || !strings.Contains(string(text), want) || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
	if err := os.Remove(n.path("networks.d/good.json")); err != nil {
		t.Error(err)
	}
	n.start()
}
