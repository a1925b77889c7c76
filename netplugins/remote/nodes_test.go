package main

import "testing"

func TestDriversOfGlobalScopeHearOfNodes(t *testing.T) {
	f := newDriver(t)
	f.set("GetCapabilities", `{"Scope": "global"}`, 200)
	r := f.newRemote(t)
	f.must(t, setup(r, configWith(t, map[string]any{"node": "192.0.2.1", "nodes": []string{"192.0.2.2"}})), "Activate GetCapabilities DiscoverNew DiscoverNew CreateNetwork")
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.2","self":false}}`; f.bodies["DiscoverNew"] != want {
		t.Errorf("DiscoverNew: %s, want %s", f.bodies["DiscoverNew"], want)
	}
	f.must(t, setup(r, configWith(t, map[string]any{"node": "192.0.2.1"})), "Activate GetCapabilities DiscoverNew DiscoverDelete")
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.1","self":true}}`; f.bodies["DiscoverNew"] != want {
		t.Errorf("DiscoverNew: %s, want %s", f.bodies["DiscoverNew"], want)
	}
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.2","self":false}}`; f.bodies["DiscoverDelete"] != want {
		t.Errorf("DiscoverDelete: %s, want %s", f.bodies["DiscoverDelete"], want)
	}
}
