package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// A Kurma daemon of 2016 runs the plugin's image as the main process of an app that is called as the
// network, in a pod with the host's namespaces, with the configuration on a pipe whose read end is
// in place of stdout and stderr as well. `add` and `del` are commands of `run`, whose stdout and
// stderr are one pipe.
func TestPluginsWorkUnderAKurmaDaemonOf2016(t *testing.T) {
	t.Parallel()
	driverName := uniqueDriver()
	for _, tt := range []struct{ plugin, config, want string }{
		{"cni", `{"name": "net", "aci": "x", "containerInterface": "eth0", "type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
			"ipam": {"type": "host-local", "subnet": "10.10.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}`, "10.10.0.2/16"},
		{"lo", `{"name": "net", "aci": "x"}`, "127.0.0.1/8"},
		{"sample", `{"name": "net", "aci": "x", "containerInterface": "eth0", "subnet": "10.99.0.0/24"}`, "10.99.0.2/32"},
		{"remote", fmt.Sprintf(`{"name": "net", "aci": "x", "containerInterface": "eth0", "driver": %q, "ipam": [{"subnet": "10.95.0.0/24", "gateway": "10.95.0.1/24"}]}`, driverName), "10.95.0.2/24"},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			d, network := start2016(t, tt.plugin, tt.config)
			ns := network.ns
			var driver *testDriver
			if tt.plugin == "remote" { // on the host, whose network namespace is the stager's
				driver = newDriver(t, &netns{t, d.Cmd}, driverName)
				t.Cleanup(driver.close)
			}
			var result struct{ IP4 struct{ IP string } }
			output := network.call("add")
			if err := json.Unmarshal([]byte(output), &result); err != nil || result.IP4.IP != tt.want {
				t.Errorf("add: %v, %q, want %s", err, output, tt.want)
			}
			if links := ns.run("ip", "-o", "-4", "addr"); !strings.Contains(links, strings.Split(tt.want, "/")[0]) {
				t.Errorf("addresses of the pod:\n%s", links)
			}
			if output := network.call("del"); output != "" {
				t.Errorf("del: %q", output)
			}
			if links := ns.run("ip", "-o", "link"); strings.Contains(links, "eth0") {
				t.Errorf("links after del:\n%s", links)
			}
			d.Stop()
			if driver == nil {
				return
			}
			if got, want := driver.methods(), strings.Join([]string{callsOfNetwork, callsOfConnect, callsOfDisconnect, "DeleteNetwork"}, " "); got != want {
				t.Errorf("calls of the driver\n%s, want\n%s", got, want)
			}
		})
	}
}

// start2016 starts the container of a network called net as such a daemon does, and makes a pod's network namespace.
func start2016(t *testing.T, plugin, config string) (*harness.Direct, *pod2016) {
	t.Helper()
	b := suite.NewMachine(t)
	rootfs, manifest := pluginImage(t, plugin)
	manifest = withHostRoot(t, manifest)
	id := harness.LayerID(rootfs)
	d := b.Direct(harness.Document{
		"kurmaVersion": "0.4.1", "name": "kurma-networking", "stagerConfig": map[string]any{},
		"images": map[string]any{id: manifest}, "appImageOrder": map[string]any{"net": []string{id}},
		"pod": harness.PodDoc{Version: "0.8.11", Kind: "PodManifest", Apps: []harness.AppDoc{{Name: "net", Image: harness.ImageRef{ID: id}}}, Isolators: []any{
			harness.Isolator("os/linux/namespaces", map[string]string{"ipc": "host", "net": "host", "pid": "host", "uts": "host"}),
		}},
	}, rootfs)
	stdin, write := b.Pipe()
	ready, up := b.Pipe()
	d.Ready = ready
	for i, suffix := range []string{names.StdinSuffix, names.StdoutSuffix, names.StderrSuffix} {
		d.Plan.Env = append(d.Plan.Env, fmt.Sprintf("%snet%s=%d", names.StdioPrefix, suffix, 5+i))
	}
	if _, err := write.WriteString(config); err != nil {
		t.Fatal(err)
	}
	write.Close()
	d.Start(nil, up, stdin, stdin, stdin)
	up.Close()
	d.WaitReady()
	return d, &pod2016{&harness.Pod{Machine: b, Stager: d.Cmd.Process.Pid}, config, newNetns(t)}
}

// The filters of the machine let a pod of such a daemon through, and have its packets masqueraded, by either backend. After
// `del` they have no rule of the pod.
func TestFiltersOfCNIWorkUnderAKurmaDaemonOf2016(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			d, network := start2016(t, "cni", fmt.Sprintf(`{"name": "net", "aci": "x", "containerInterface": "eth0", "cniVersion": "1.0.0", "plugins": [
				{"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": %q,
					"ipam": {"type": "host-local", "subnet": "10.10.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}},
				{"type": "firewall", "backend": "iptables"}]}`, backend))
			host, world := &netns{t, d.Cmd}, newNetns(t)
			host.join(world, "testup", "203.0.113.2/24", "eth0", "203.0.113.1/24")
			host.run("iptables", "-P", "FORWARD", "DROP")
			world.serve("0.0.0.0", 9000, "world for")
			network.call("add")
			answers(t, "world for 203.0.113.2", func() string { return network.ns.fetch("203.0.113.1", 9000) })
			rules := host.run("nft", "list", "ruleset")
			if native := strings.Contains(rules, "table inet cni_plugins_masquerade"); native != (backend == "nftables") || !strings.Contains(rules, "10.10.0.2") {
				t.Errorf("rules of backend %s:\n%s", backend, rules)
			}
			network.call("del")
			if rules := host.run("nft", "list", "ruleset"); strings.Contains(rules, "10.10.0.2") {
				t.Errorf("left: rules of the pod\n%s", rules)
			}
			d.Stop()
		})
	}
}

// Another stager's run passes no environment to a command. cni-netplugin finds its image's programs, and CNI its plugins, all the
// same.
func TestAddOfCNIWorksWithoutAnEnvironmentUnderAKurmaDaemonOf2016(t *testing.T) {
	t.Parallel()
	d, network := start2016(t, "cni", `{"name": "net", "aci": "x", "containerInterface": "eth0", "type": "bridge", "bridge": "br0", "isGateway": true,
		"ipMasq": true, "ipMasqBackend": "iptables", "ipam": {"type": "host-local", "subnet": "10.10.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}`)
	host := &netns{t, d.Cmd}
	if output := network.callBare("add"); !strings.Contains(output, `"10.10.0.2/16"`) {
		t.Errorf("add: %q", output)
	}
	if rules := host.run("iptables-save", "-t", "nat"); !strings.Contains(rules, "-s 10.10.0.2/32 ") || !strings.Contains(rules, "MASQUERADE") {
		t.Errorf("rules after add\n%s", rules)
	}
	if output := network.callBare("del"); output != "" {
		t.Errorf("del: %q", output)
	}
	if rules := host.run("iptables-save", "-t", "nat"); strings.Contains(rules, "10.10.0.2") {
		t.Errorf("rules after del\n%s", rules)
	}
	d.Stop()
}

// pod2016 is a network's container, and a pod's network namespace.
type pod2016 struct {
	*harness.Pod
	config string
	ns     *netns
}

// call calls one of the plugin's executables, which must succeed, and returns stdout and stderr.
func (p *pod2016) call(name string) string {
	p.T.Helper()
	settings, err := json.Marshal(map[string]any{
		"exec": []string{"/opt/network/" + name, fmt.Sprintf("/proc/%d/ns/net", p.ns.hold.Process.Pid), "146d7cef-fbf6-41da-a2f8-eba218597f9c", "eth0"},
		"user": "0", "group": "0", "environment": []any{hostRootVariable()},
	})
	if err != nil {
		p.T.Fatal(err)
	}
	read, write := p.Pipe()
	if _, err := write.Write(settings); err != nil {
		p.T.Fatal(err)
	}
	write.Close()
	// With --root, because the stager is in a chroot.
	cmd := exec.Command("nsenter", fmt.Sprintf("--target=%d", p.Stager), "--mount", "--net", "--root", "--wd=/", names.CallInDir+"/"+names.Run, "net")
	cmd.Env = []string{"HOME=/root"}
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = strings.NewReader(p.config), &output, []*os.File{read}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		p.T.Fatalf("%s: %v\n%s", name, err, output.String())
	}
	return strings.TrimSpace(output.String())
}

// callBare is call without an environment: the executable starts beside the container's main process, which has the namespaces
// and the root.
func (p *pod2016) callBare(name string) string {
	p.T.Helper()
	processes := p.Processes()
	main := slices.IndexFunc(processes, func(pid int) bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return string(line) == "/opt/network/setup\x00stay\x00"
	})
	if main < 0 {
		p.T.Fatal("the plugin has no main process")
	}
	cmd := exec.Command("nsenter", fmt.Sprintf("--target=%d", processes[main]), "--mount", "--net", "--root", "--wd=/",
		"/opt/network/"+name, fmt.Sprintf("/proc/%d/ns/net", p.ns.hold.Process.Pid), "146d7cef-fbf6-41da-a2f8-eba218597f9c", "eth0")
	cmd.Env, cmd.Stdin = []string{}, strings.NewReader(p.config)
	output, err := cmd.CombinedOutput()
	if err != nil {
		p.T.Fatalf("%s: %v\n%s", name, err, output)
	}
	return strings.TrimSpace(string(output))
}

// hostRootVariable is the variable of the host's root folder. Such a daemon does not set it, and the plugin
// takes that of the machine's first process, which a test may be forbidden to read: see
// TestDriversOfTheMachineAreFoundWithoutTheLauncher.
func hostRootVariable() map[string]string {
	return map[string]string{"name": "NETWORK_HOST", "value": fmt.Sprintf("/proc/%d/root", os.Getpid())}
}

// withHostRoot adds the variable to the app of an image's manifest.
func withHostRoot(t *testing.T, manifest json.RawMessage) json.RawMessage {
	t.Helper()
	var image struct {
		App map[string]any `json:"app"`
	}
	var all map[string]any
	if err := errors.Join(json.Unmarshal(manifest, &image), json.Unmarshal(manifest, &all)); err != nil {
		t.Fatal(err)
	}
	environment, _ := image.App["environment"].([]any)
	image.App["environment"], all["app"] = append(environment, hostRootVariable()), image.App
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Without the launcher's variable a plugin finds drivers through the machine's first process: here a shell
// that is PID 1 of a namespace of its own.
func TestDriversOfTheMachineAreFoundWithoutTheLauncher(t *testing.T) {
	t.Parallel()
	rootfs, _ := pluginImage(t, "remote")
	host := newNetns(t)
	name := uniqueDriver()
	d := newDriver(t, host, name)
	t.Cleanup(d.close)
	config := fmt.Sprintf(`{"name": "net", "driver": %q}`, name)
	// The plugin's state goes into a file system of the test's own. The driver's socket is visible to the shell only.
	script := fmt.Sprintf(`mount -t tmpfs none /var/lib && echo '%s' | NETWORK_HOST= unshare --mount sh -c 'mount -t tmpfs none /run && %s/opt/network/setup'; exit $?`, config, rootfs)
	cmd := host.command("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script)
	if r := harness.Finish(t, cmd); r.Code != 0 {
		t.Fatalf("setup: %+v", r)
	}
	if got := d.methods(); got != callsOfNetwork {
		t.Errorf("calls %s, want %s", got, callsOfNetwork)
	}
}

// pluginImage returns the files and the manifest of a plugin's image in the store of the networks' tests.
func pluginImage(t *testing.T, plugin string) (rootfs string, manifest json.RawMessage) {
	t.Helper()
	store, err := makeNetworkStore()
	if err != nil {
		t.Fatal(err)
	}
	manifests, _ := filepath.Glob(filepath.Join(store, "sha512-*", "manifest"))
	for _, path := range manifests {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "kurma.io/stager/"+plugin+"-netplugin") {
			return filepath.Join(filepath.Dir(path), "rootfs"), data
		}
	}
	t.Fatalf("the store has no image of plugin %s", plugin)
	return "", nil
}
