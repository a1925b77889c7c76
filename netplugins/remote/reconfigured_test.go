package main

import (
	"strings"
	"testing"
)

// A network whose configuration changes is another network. The old one goes with its last pod.
func TestNetworksOfAnEarlierConfigurationGo(t *testing.T) {
	f := newDriver(t)
	r, old, config := f.newRemote(t), configWith(t, nil), configWith(t, map[string]any{"options": map[string]any{"mode": "l3"}})
	f.must(t, setup(r, old), callsOfSetup)
	f.must(t, setup(r, config), "Activate GetCapabilities DeleteNetwork CreateNetwork")
	f.must(t, setup(r, old), "Activate GetCapabilities DeleteNetwork CreateNetwork")
	f.must(t, add(r, old, "pod-1"), callsOfAdd)
	f.must(t, setup(r, config), "Activate GetCapabilities")
	f.must(t, del(r, old, "pod-1"), callsOfDel+" DeleteNetwork")
	f.must(t, add(r, config, "pod-2"), "Activate GetCapabilities CreateNetwork "+callsOfAdd)
	f.must(t, del(r, config, "pod-2"), callsOfDel)
	f.checkEmpty(t, 1)
}

// The driver may take the new network while the old one, with the same subnet, has pods. What an earlier boot has
// left of an address does not matter.
func TestPodsOfAnEarlierConfigurationKeepTheirAddresses(t *testing.T) {
	f := newDriver(t)
	r, old := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, old), callsOfSetup)
	f.must(t, add(r, old, "pod-1"), callsOfAdd)
	more := map[string]any{"options": map[string]any{"mode": "l3"}}
	config := configWith(t, more)
	f.must(t, setup(r, config), "Activate GetCapabilities")
	result, err := r.Add(t.Context(), config, podNamed("pod-2"))
	f.must(t, err, callsOfSetup+" "+callsOfAdd)
	if result.IP4.IP != "10.1.0.4/24" {
		t.Errorf("the second pod has the address %s", result.IP4.IP)
	}
	more["runtimeConfig"] = map[string]any{"ips": []string{"10.1.0.3"}}
	config = configWith(t, more)
	if err, calls := add(r, config, "pod-3"), f.take(); err == nil || !strings.Contains(err.Error(), "10.1.0.3 is taken") || calls != "" {
		t.Errorf("error %v, calls %s", err, calls)
	}
	r.state.boot = "boot 2"
	f.must(t, add(r, config, "pod-3"), "Activate GetCapabilities RevokeExternalConnectivity Leave detach:eth0:veth1 DeleteEndpoint DeleteNetwork CreateNetwork "+callsOfAdd)
}
