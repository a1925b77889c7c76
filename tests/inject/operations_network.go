package inject

import (
	"path/filepath"
	"strings"
)

// networkEntries are the networks of the launcher's configuration.
func networkEntries() []any {
	return []any{
		map[string]any{
			"name": "bridge", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0",
			"plugins": []any{
				map[string]any{
					"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": map[string]any{
						"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": "10.88.0.0/16"}}},
					},
				},
				map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
				map[string]any{"type": "firewall"},
			},
		},
		map[string]any{"name": "loop", "aci": "kurma.io/stager/lo-netplugin", "containerInterface": "lo{{num}}"},
	}
}

// pluginImage returns the file of a plugin's image.
func (b built) pluginImage(name string) string {
	return filepath.Join(filepath.Dir(b.ACI), name+"-netplugin.aci")
}

// networkOperations are those of pods with a network, and the commands about networks. A pod q has the plugin run
// already, but for what sets it up.
func networkOperations(b built) []operation {
	running := func(w *world, _ result) bool { return w.running() }
	other := func(network string) []string {
		return []string{"run", "--detach", "--name", "q", "--net", network, "--exec", "/bin/sh", b.Busy, "--", "-c", podScript}
	}
	bridged := func(more ...string) []string { return upPod(b, append([]string{"--net", "bridge"}, more...)...) }
	published := bridged("--publish", "18080:8080")
	return []operation{
		{name: "net-setup", act: bridged(), ready: (*world).absent, done: running},
		{name: "net-add", before: [][]string{other("bridge")}, act: published, ready: (*world).onlyOther, done: running},
		{
			name: "net-del", before: [][]string{other("bridge"), published, {awaitWord}}, act: []string{"stop", "p"}, ready: (*world).running,
			done: func(w *world, _ result) bool { return w.exited() }, kept: hello,
		},
		{name: "lo-add", before: [][]string{other("loop")}, act: upPod(b, "--net", "loop"), ready: (*world).onlyOther, done: running},
		{
			name: "lo-del", before: [][]string{other("loop"), upPod(b, "--net", "loop"), {awaitWord}}, act: []string{"stop", "p"}, ready: (*world).running,
			done: func(w *world, _ result) bool { return w.exited() }, kept: hello,
		},
		{name: "net-list", before: [][]string{other("loop")}, act: []string{"network", "list"}, done: said("bridge", "loop")},
		{name: "net-inspect", before: [][]string{other("loop")}, act: []string{"network", "inspect", "loop"}, done: said("loop")},
		{name: "net-validate", act: []string{"network", "validate", "loop"}, done: said("loop")},
		{
			name: "net-prune", before: [][]string{other("loop"), {"stop", "q"}}, act: []string{"network", "prune"},
			ready: func(w *world) bool { return strings.Contains(w.launcher("ps", "--all").stdout, "q ") },
			done:  func(w *world, _ result) bool { return !strings.Contains(strings.Join(w.processes(), "\n"), ".hold") },
		},
	}
}

// onlyOther reports whether the pod q runs, and p does not exist.
func (w *world) onlyOther() bool {
	pods := w.launcher("ps", "--all", "--json").stdout
	return strings.Contains(pods, `"name":"q","state":"running"`) && !strings.Contains(pods, `"name":"p"`)
}
