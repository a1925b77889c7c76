package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// changeableEntry is a point-to-point network with more keys.
func changeableEntry(more string) string {
	return fmt.Sprintf(`[{"name": "ptp", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0",
		"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}%s}]`, more)
}

// The plugin that a changed configuration has started stays when pods end that were started before.
func TestThePluginOfAChangedNetworkDisconnectsEarlierPods(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, changeableEntry(""))
	doc := harness.PodOf(server("s", "for"))
	old := []*harness.Pod{m.connect("a", doc, "ptp"), m.connect("b", doc, "ptp"), m.connect("c", doc, "ptp")}
	before := m.pluginOf("ptp").PID
	m.reconfigure(changeableEntry(`, "mtu": 1400`))
	later := m.connect("later", doc, "ptp")
	plugin := m.pluginOf("ptp").PID
	if plugin == before {
		t.Fatal("the plugin was not started again with the changed configuration")
	}
	for _, p := range old {
		m.Must("stop", p.Name)
		if now := m.pluginOf("ptp").PID; now != plugin {
			t.Fatalf("the end of pod %s has replaced the plugin %d by %d", p.Name, plugin, now)
		}
	}
	address := m.networksOf(later)[0].address(false)
	answers(t, "for 10.89.0.1", func() string { return m.host.fetch(address, 8080) })
}

// slow is a plugin as a shell script, whose `add` takes its time under the configuration "slow".
const slow = `#!/bin/busybox sh
config=$(/bin/busybox cat)
echo "$0 begins" >>/var/lib/network/calls
case ${0##*/}:$config in
add:*slow*) /bin/busybox sleep 4; echo '{}' ;;
esac
echo "$0 ends" >>/var/lib/network/calls
`

// A plugin that a changed configuration replaces ends the calls first that are under way.
func TestThePluginOfAChangedNetworkIsReplacedAfterItsCalls(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, slow, "slow")
	entries, _ := m.Config["container_networks"].(json.RawMessage)
	doc := m.Write("pod.json", harness.PodOf(suite.Shell("s", "sleep 1000")))
	ended := make(chan harness.Result, 1)
	go func() { ended <- m.Launcher("run", "--detach", "--name", "slow", "--net", "slow", doc) }()
	harness.Eventually(t, "the add has begun", func() bool { return strings.Contains(m.calls("slow"), "/add begins") })
	m.LayersAreNow()
	m.reconfigure(strings.ReplaceAll(string(entries), `"do": "slow"`, `"do": "something else"`))
	m.Must("run", "--detach", "--name", "later", "--net", "slow", doc)
	if r := <-ended; r.Code != 0 {
		t.Errorf("a pod whose network's configuration changed while it was connected: %+v", r)
	}
	if calls := m.calls("slow"); strings.Count(calls, "/setup begins") != 2 || !strings.Contains(calls, "/add ends\n/opt/network/setup begins") {
		t.Errorf("calls %q, want the second setup after the first add", calls)
	}
}

// A pod is disconnected although its network's entry was first changed to one that cannot be set up, and then left the
// configuration: the plugin is started with the last entry that could.
func TestAPodIsDisconnectedFromANetworkWhoseChangeFailed(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "chatty")
	entries, _ := m.Config["container_networks"].(json.RawMessage)
	p := m.connect("p", harness.PodOf(suite.Shell("s", "sleep 1000")), "chatty")
	m.LayersAreNow()
	m.reconfigure(strings.ReplaceAll(string(entries), `"do": "chatty"`, `"do": "unready"`))
	for range 2 {
		if r := m.Launcher("network", "validate", "chatty"); r.Code != 1 || !strings.Contains(r.Stdout, "no such bridge") {
			t.Fatalf("network validate: %+v", r)
		}
	}
	m.reconfigure("[]")
	m.kill(p.Name)
	m.Must("gc")
	if calls := m.calls("chatty"); strings.Count(calls, "/opt/network/del /proc/") != 1 {
		t.Errorf("calls %q, want one of del", calls)
	}
}

// The next setup of the CNI plugin removes the rules of a pod that was deleted without a DEL, also those of a plugin
// that has left the network's list since.
func TestTheNextSetupOfCNIRemovesTheRulesOfPodsWithoutADEL(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+cniEntry("ptp", `"plugins": [
		{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]`)+"]")
	doc := harness.PodOf(server("s", "for"))
	m.connect("gone", netPodDoc{doc, []map[string]any{published("web", "tcp", 8080, 8080, 1)}}, "ptp")
	m.killPlugin("ptp")
	m.kill("gone")

	path := filepath.Join(m.networks, "ptp", "network.json")
	var record map[string]any
	if data, err := os.ReadFile(path); err != nil || json.Unmarshal(data, &record) != nil {
		t.Fatalf("read record: %v: %s", err, data)
	}
	record["entry"] = "" // nothing is known with which the plugin could be started
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m.reconfigure("[]")
	if r := m.Launcher("rm", "--force", "gone"); r.Code != 1 || !strings.Contains(r.Stderr, `no network "ptp"`) {
		t.Fatalf("rm of a pod whose network is not in the configuration: %+v", r)
	}
	m.reconfigure(changeableEntry(""))
	m.connect("next", doc, "ptp")
	m.Must("stop", "next")
	m.checkNetworks()
}

// The image of a network that connects a pod is in use, also when the network has left the configuration, until its
// plugin has deleted it.
func TestTheImageOfAConnectedPodsPluginStays(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, slow, "gone")
	p := m.connect("p", harness.PodOf(suite.Shell("s", "sleep 1000")), "gone")
	m.LayersAreNow()
	var plugin struct{ Image string }
	if err := json.Unmarshal([]byte(m.Must("network", "inspect", "gone")), &plugin); err != nil {
		t.Fatal(err)
	}
	stays := func(state string) {
		t.Helper()
		if r := m.Launcher("image", "rm", plugin.Image); r.Code != 1 || !strings.Contains(r.Stderr, `in use by network "gone"`) {
			t.Errorf("rm of the image, %s: %+v", state, r)
		}
		if out := m.Must("image", "prune", "--all", "--dry-run"); strings.Contains(out, plugin.Image) {
			t.Errorf("prune, %s: %q has the image %s", state, out, plugin.Image)
		}
	}
	stays("whose plugin runs")
	m.killPlugin("gone")
	m.reconfigure("[]")
	stays("whose plugin was killed")
	m.Must("stop", p.Name)
	stays("which the plugin has to delete")
	m.Must("gc")
	m.Must("image", "rm", plugin.Image)
	m.LayersAreNow()
}

// A new configuration whose image cannot be fetched costs the pods that are started with it, and not the plugin that runs.
func TestAPluginRunsUntilThereIsAnother(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, slow, "net")
	doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
	p := m.connect("p", doc, "net")
	m.LayersAreNow()
	before := m.pluginOf("net")
	entries, _ := m.Config["container_networks"].(json.RawMessage)
	m.reconfigure(strings.ReplaceAll(string(entries), ".aci", ".gone.aci"))
	if r := m.Launcher("run", "--detach", "--net", "net", m.Write("q.json", doc)); r.Code != 1 || !strings.Contains(r.Stderr, ".gone.aci") {
		t.Errorf("a pod whose plugin's image is missing: %+v", r)
	}
	m.reconfigure(string(entries))
	if now := m.pluginOf("net"); now != before {
		t.Errorf("the plugin was process %d, and is %+v", before.PID, now)
	}
	m.Must("stop", p.Name)
}
