package inject

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		map[string]any{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "eth{{num}}", "subnet": "10.77.0.0/16"},
		map[string]any{
			"name": "remote", "aci": "kurma.io/stager/remote-netplugin", "containerInterface": "eth{{num}}", "driver": driverName,
			"ipam": []any{map[string]any{"subnet": "10.66.0.0/16", "gateway": "10.66.0.1/16"}},
		},
	}
}

// driverName is the name of the network driver that the remote plugin calls.
const driverName = "td"

// plugins are the plugins' images.
func plugins() []string { return []string{"cni", "lo", "sample", "remote"} }

// pluginImage returns the file of a plugin's image.
func (b built) pluginImage(name string) string {
	return filepath.Join(filepath.Dir(b.ACI), name+"-netplugin.aci")
}

// trusted are the files of the keys that the launcher trusts.
func (b built) trusted() []string {
	all := []string{b.ACI + ".pub"}
	for _, name := range plugins() {
		all = append(all, b.pluginImage(name)+".pub")
	}
	return all
}

// setUpNetworks imports the plugins' images, and starts the driver: it is no part of the product and has no filter.
func (w *world) setUpNetworks() error {
	images := []string{"image", "import"}
	for _, name := range plugins() {
		images = append(images, w.pluginImage(name))
	}
	if r := w.launcher(images...); r.code != 0 {
		return fmt.Errorf("import plugins: %s", r.stderr)
	}
	const sockets = "/run/docker/plugins"
	if err := os.MkdirAll(sockets, 0o755); err != nil {
		return err
	}
	return exec.Command(w.Driver, filepath.Join(sockets, driverName+".sock"), w.path("out")).Start() // it ends with the world
}

// networkOperations are those of pods with a network, and the commands about networks. A pod q has the plugin run
// already, but for what sets it up.
func networkOperations(b built) []operation {
	running := func(w *world, _ result) bool { return w.running() }
	bridged := func(more ...string) []string { return upPod(b, append([]string{"--net", "bridge"}, more...)...) }
	published := bridged("--publish", "18080:8080")
	return append([]operation{
		{name: "net-setup", act: bridged(), ready: (*world).absent, done: running},
		{name: "net-add", before: [][]string{otherPod(b, "bridge")}, act: published, ready: (*world).onlyOther, done: running},
		{
			name: "net-del", before: [][]string{otherPod(b, "bridge"), published, {awaitWord}}, act: []string{"stop", "p"}, ready: (*world).running,
			done: func(w *world, _ result) bool { return w.exited() }, kept: hello,
		},
		{name: "net-list", before: [][]string{otherPod(b, "loop")}, act: []string{"network", "list"}, done: said("bridge", "loop")},
		{name: "net-inspect", before: [][]string{otherPod(b, "loop")}, act: []string{"network", "inspect", "loop"}, done: said("loop")},
		{name: "net-validate", act: []string{"network", "validate", "loop"}, done: said("loop")},
		{
			name: "net-prune", before: [][]string{otherPod(b, "loop"), {"stop", "q"}}, act: []string{"network", "prune"},
			ready: func(w *world) bool { return strings.Contains(w.launcher("ps", "--all").stdout, "q ") },
			done:  func(w *world, _ result) bool { return !strings.Contains(strings.Join(w.processes(), "\n"), ".hold") },
		},
	}, slices.Concat(connectOperations(b, "lo", "loop"), connectOperations(b, "sample", "sample"), connectOperations(b, "remote", "remote"))...)
}

// connectOperations are add and del of a network's plugin.
func connectOperations(b built, name, network string) []operation {
	up := upPod(b, "--net", network)
	return []operation{
		{
			name: name + "-add", before: [][]string{otherPod(b, network)}, act: up, ready: (*world).onlyOther,
			done: func(w *world, _ result) bool { return w.running() },
		},
		{
			name: name + "-del", before: [][]string{otherPod(b, network), up, {awaitWord}}, act: []string{"stop", "p"}, ready: (*world).running,
			done: func(w *world, _ result) bool { return w.exited() }, kept: hello,
		},
	}
}

// otherPod is the command that starts the pod q on a network.
func otherPod(b built, network string) []string {
	return []string{"run", "--detach", "--name", "q", "--net", network, "--exec", "/bin/sh", b.Busy, "--", "-c", podScript}
}

// onlyOther reports whether the pod q runs, and p does not exist.
func (w *world) onlyOther() bool {
	pods := w.launcher("ps", "--all", "--json").stdout
	return strings.Contains(pods, `"name":"q","state":"running"`) && !strings.Contains(pods, `"name":"p"`)
}
