package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ficklePlugin is a CNI plugin that passes on the result of the one before, and fails or hangs while a file is there.
const ficklePlugin = `#!/bin/sh
cd %q
[ ! -e hang-$CNI_COMMAND ] || exec sleep 1000
[ ! -e fail-$CNI_COMMAND ] || { echo '{"code": 100, "msg": "fickle"}'; exit 1; }
[ $CNI_COMMAND != ADD ] || sed 's/.*"prevResult":\(.*\),"type":"fickle".*/\1/'
`

// newFickleNode starts a node whose network's second plugin does as the returned function says: a file of that name
// is there or not.
func newFickleNode(t *testing.T) (*node, func(file string, there bool)) {
	t.Helper()
	n := newNode(t)
	n.kill()
	plugin := n.path("plugins/fickle")
	n.write(plugin, fmt.Sprintf(ficklePlugin, n.path("plugins")))
	if err := os.Chmod(plugin, 0o755); err != nil {
		t.Fatal(err)
	}
	n.writeConfig(map[string]any{"networkPluginDirectories": []string{n.path("plugins"), "/usr/lib/cni"}})
	list := n.path("net.d/10-bridge.conflist")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	n.write(list, strings.TrimSuffix(string(text), "]}")+`, {"type": "fickle"}]}`)
	n.start()
	return n, func(file string, there bool) {
		t.Helper()
		path := n.path("plugins/" + file)
		if there {
			n.write(path, "")
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// wantSandbox checks that one sandbox is listed, in that state.
func (n *node) wantSandbox(state runtimeapi.PodSandboxState) string {
	n.Helper()
	r, err := n.ListPodSandbox(n.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(r.Items) != 1 || r.Items[0].State != state {
		n.Fatalf("%v, %v, want one that is %s", r, err, state)
	}
	return r.Items[0].Id
}

// wantNoAddress checks that the network has all of its addresses.
func (n *node) wantNoAddress() {
	n.Helper()
	if files, err := filepath.Glob(n.path("ipam/test/10.*")); err != nil || len(files) > 0 {
		n.Errorf("addresses %v, %v", files, err)
	}
}

// A plugin that fails leaves a sandbox with its network namespace, in which the next DEL works. The sandbox is listed
// until a later call has removed it.
func TestPluginsThatFailLeaveNothing(t *testing.T) {
	n, set := newFickleNode(t)
	ctx, config := t.Context(), n.sandboxConfig()
	p := n.run(config)
	remove := func(id string) error {
		_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	}
	set("fail-DEL", true)
	if _, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err == nil || !strings.Contains(err.Error(), "fickle") {
		t.Errorf("stopped: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || !strings.Contains(string(mounts), p.id+"/net ") {
		t.Errorf("the plugins have no network namespace for the next DEL: %v", err)
	}
	if err := remove(p.id); err == nil {
		t.Error("removed although its address is not free")
	}
	if id := n.wantSandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY); id != p.id {
		t.Errorf("sandbox %s", id)
	}
	set("fail-DEL", false)
	if err := remove(p.id); err != nil {
		t.Error(err)
	}
	n.wantNoAddress()

	run := func() error {
		_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		return err
	}
	set("fail-ADD", true)
	set("fail-DEL", true)
	if err := run(); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	id := n.wantSandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	set("fail-ADD", false)
	if err := run(); err == nil || !strings.Contains(err.Error(), "earlier call") {
		t.Errorf("%v", err)
	}
	set("fail-DEL", false)
	if err := run(); err != nil {
		t.Error(err)
	}
	again := n.wantSandbox(runtimeapi.PodSandboxState_SANDBOX_READY)
	if again == id {
		t.Error("the sandbox that failed is ready")
	}
	if err := remove(again); err != nil {
		t.Error(err)
	}
	n.wantNoAddress()
}

// A server whose network's plugin hangs serves nevertheless.
func TestAPluginThatHangsDoesNotKeepTheSocketAway(t *testing.T) {
	n, set := newFickleNode(t)
	p := n.run(n.sandboxConfig())
	n.kill()
	record := n.path("state/sandboxes/" + p.id + "/sandbox.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	n.write(record, strings.Replace(string(text), `"phase":"ready"`, `"phase":"making"`, 1))
	set("hang-DEL", true)
	n.start()
	if r, err := n.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(r.Items) != 0 {
		t.Errorf("%v, %v, want a server that serves before the plugin has had its time", r, err)
	}
	surroundings.Eventually(t, "the sandbox is listed, as the plugin has had its time", func() bool {
		r, err := n.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		return err == nil && len(r.Items) == 1 && r.Items[0].State == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	set("hang-DEL", false)
	if _, err := n.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	surroundings.Eventually(t, "the address is free", func() bool {
		files, err := filepath.Glob(n.path("ipam/test/10.*"))
		return err == nil && len(files) == 0
	})
}

// The annotations of a pod limit its network, and limits that are none are refused.
func TestBandwidthOfAPodIsLimited(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	list := n.path("net.d/10-bridge.conflist")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	n.write(list, strings.TrimSuffix(string(text), "]}")+`, {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}`)
	config := n.sandboxConfig()
	config.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "8M", "kubernetes.io/egress-bandwidth": "300k"}
	p := n.run(config)
	limits := func() string {
		out, err := exec.Command("tc", "qdisc", "show").CombinedOutput()
		if err != nil {
			t.Fatalf("%s, %v", out, err)
		}
		return string(out)
	}
	for _, rate := range []string{"rate 8Mbit", "rate 300Kbit"} {
		if qdiscs := limits(); !strings.Contains(qdiscs, rate) {
			t.Errorf("no limit with %s:\n%s", rate, qdiscs)
		}
	}
	if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	if qdiscs := limits(); strings.Contains(qdiscs, "tbf") {
		t.Errorf("left:\n%s", qdiscs)
	}
	for _, bad := range []string{"", "fast", "10", "2P", "-1M"} {
		config := n.sandboxConfig()
		config.Annotations = map[string]string{"kubernetes.io/egress-bandwidth": bad}
		want := fmt.Sprintf("annotation kubernetes.io/egress-bandwidth: %q: want", bad)
		if _, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
