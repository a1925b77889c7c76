package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// changeableEntry is a point-to-point network with more keys.
func changeableEntry(more string) string {
	return fmt.Sprintf(`[{"name": "ptp", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0",
		"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}%s}]`, more)
}

// The plugin that a changed configuration has started stays when pods end that were started before.
func TestThePluginOfAChangedNetworkDisconnectsEarlierPods(t *testing.T) {
	m := newNetMachine(t, changeableEntry(""))
	doc := podOf(server("s", "for"))
	old := []*pod{m.connect("a", doc, "ptp"), m.connect("b", doc, "ptp"), m.connect("c", doc, "ptp")}
	before := m.pluginOf("ptp").PID
	m.reconfigure(changeableEntry(`, "mtu": 1400`))
	later := m.connect("later", doc, "ptp")
	plugin := m.pluginOf("ptp").PID
	if plugin == before {
		t.Fatal("the plugin was not started again with the changed configuration")
	}
	for _, p := range old {
		m.must("stop", p.name)
		if now := m.pluginOf("ptp").PID; now != plugin {
			t.Fatalf("the end of pod %s has replaced the plugin %d by %d", p.name, plugin, now)
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
	m := newScriptMachine(t, slow, "slow")
	entries, _ := m.config["container_networks"].(json.RawMessage)
	doc := m.write("pod.json", podOf(shell("s", "sleep 1000")))
	ended := make(chan result, 1)
	go func() { ended <- m.launcher("run", "--detach", "--name", "slow", "--net", "slow", doc) }()
	eventually(t, "the add has begun", func() bool { return strings.Contains(m.calls("slow"), "/add begins") })
	m.layersAreNow()
	m.reconfigure(strings.ReplaceAll(string(entries), `"do": "slow"`, `"do": "something else"`))
	m.must("run", "--detach", "--name", "later", "--net", "slow", doc)
	if r := <-ended; r.code != 0 {
		t.Errorf("a pod whose network's configuration changed while it was connected: %+v", r)
	}
	if calls := m.calls("slow"); strings.Count(calls, "/setup begins") != 2 || !strings.Contains(calls, "/add ends\n/opt/network/setup begins") {
		t.Errorf("calls %q, want the second setup after the first add", calls)
	}
}
