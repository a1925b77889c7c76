package tests

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// After a crash of launcher and plugin, the plugin's next setup calls CNI's GC, by which libcni disconnects every pod
// that is not among the valid ones: a live pod keeps its link, its address and the record of it. The dead pod
// loses all.
func TestGCAfterACrashSparesLivePodsOfCNI(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[{"name": "ptp", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.1.0",
		"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/29"}}]`)
	doc := harness.PodOf(server("s", "for"))
	live, dead := m.connect("live", doc, "ptp"), m.connect("dead", doc, "ptp")
	address := m.networksOf(live)[0].address(false)
	free := m.networksOf(dead)[0].address(false)
	m.kill(dead.Name)
	plugin := m.killPlugin("ptp")
	m.Must("gc")
	if again := m.pluginOf("ptp"); again.PID == plugin {
		t.Fatal("the plugin was not started again")
	}
	kept, _ := filepath.Glob(filepath.Join(m.networks, "ptp/run/cni/networks/ptp/10.*"))
	results, _ := filepath.Glob(filepath.Join(m.networks, "ptp/run/cache/results/*"))
	if want := filepath.Join(m.networks, "ptp/run/cni/networks/ptp", address); !slices.Equal(kept, []string{want}) || len(results) != 1 {
		t.Errorf("addresses %q, results %q; want those of the live pod, %s", kept, results, want)
	}
	answers(t, "for 10.89.0.1", func() string { return m.host.fetch(address, 8080) })

	var given []string
	for _, name := range []string{"a", "b", "c", "d"} { // the subnet has six addresses; one is the gateway's, one the live pod's
		given = append(given, m.networksOf(m.connect(name, doc, "ptp"))[0].address(false))
	}
	if slices.Contains(given, address) || !slices.Contains(given, free) {
		t.Errorf("addresses of later pods %q: want that of the dead pod, %s, and not that of the live one, %s", given, free, address)
	}
}

// A pod that `rm --force` has deleted although `del` had failed keeps its address until the plugin is set up again: the
// plugin then disconnects the pods whose network namespace is gone. This needs no GC of CNI's.
func TestTheNextSetupOfCNIDisconnectsPodsThatWereDeletedByForce(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[{"name": "ptp", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "0.4.0",
		"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/30"}}]`)
	doc := harness.PodOf(server("s", "for"))
	m.connect("gone", doc, "ptp")

	lock := filepath.Join(m.networks, "ptp/run/cni/networks/ptp/lock")
	if err := errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)); err != nil { // host-local opens it as a file
		t.Fatal(err)
	}
	if r := m.Launcher("rm", "--force", "gone"); r.Code != 1 || !strings.Contains(r.Stderr, `pod "gone" is deleted, but its networks still hold resources for it: `) {
		t.Fatalf("rm of a pod whose del fails: %+v", r)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if r := m.Launcher("run", "--detach", "--name", "refused", "--net", "ptp", m.Write("refused.json", doc)); r.Code == 0 {
		t.Fatalf("the network's only address was given away twice: %+v", r)
	}
	m.Must("gc")
	next := m.networksOf(m.connect("next", doc, "ptp"))[0].address(false)
	answers(t, "for 10.89.0.1", func() string { return m.host.fetch(next, 8080) })
	if left, _ := filepath.Glob(filepath.Join(m.networks, "ptp/run/cache/deleting/*")); len(left) != 0 {
		t.Errorf("left: marks of interrupted calls %q", left)
	}
}

// The removal of the package stops the plugins and keeps the pods that have ended.
func TestNetworkPruneStopsThePluginsThatNoPodUses(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[{"name": "ptp", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.1.0",
		"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/29"}}]`)
	p := m.connect("p", harness.PodOf(server("s", "for")), "ptp")
	if out := m.Must("network", "prune"); out != "" {
		t.Errorf("stopped in use: %s", out)
	}
	m.Must("stop", "p")
	if out := m.Must("network", "prune", "--json"); out != "{\"name\":\"ptp\"}\n" {
		t.Errorf("network prune printed %q", out)
	}
	if out := m.Must("network", "list", "--json"); !strings.Contains(out, `"running":false`) {
		t.Errorf("after network prune: %s", out)
	}
	if info := m.ended(p.UUID); info.State != "exited" {
		t.Errorf("the pod's state is %q", info.State)
	}
}
