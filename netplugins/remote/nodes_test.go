package main

import "testing"

func TestDriversOfGlobalScopeHearOfNodes(t *testing.T) {
	f := newDriver(t)
	f.set("GetCapabilities", `{"Scope": "global"}`, 200)
	r := f.newRemote(t)
	f.must(t, setup(r, configWith(t, map[string]any{"node": "192.0.2.1", "nodes": []string{"192.0.2.2"}})), "Activate GetCapabilities DiscoverNew DiscoverNew CreateNetwork")
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.2","BindAddress":"","Self":false,"self":false}}`; f.bodies["DiscoverNew"] != want {
		t.Errorf("DiscoverNew: %s, want %s", f.bodies["DiscoverNew"], want)
	}
	f.must(t, setup(r, configWith(t, map[string]any{"node": "192.0.2.1"})), "Activate GetCapabilities DiscoverNew DiscoverDelete")
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.1","BindAddress":"192.0.2.1","Self":true,"self":true}}`; f.bodies["DiscoverNew"] != want {
		t.Errorf("DiscoverNew: %s, want %s", f.bodies["DiscoverNew"], want)
	}
	if want := `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.2","BindAddress":"","Self":false,"self":false}}`; f.bodies["DiscoverDelete"] != want {
		t.Errorf("DiscoverDelete: %s, want %s", f.bodies["DiscoverDelete"], want)
	}
}

// To Docker these calls are notices.
func TestDriversOfGlobalScopeMayRefuseToHearOfNodes(t *testing.T) {
	for _, tt := range []struct {
		answer string
		status int
	}{{"404 page not found", 404}, {`{"Err": "unknown method"}`, 200}} {
		f := newDriver(t)
		f.set("GetCapabilities", `{"Scope": "global"}`, 200)
		f.set("DiscoverNew", tt.answer, tt.status)
		f.set("DiscoverDelete", tt.answer, tt.status)
		r := f.newRemote(t)
		f.must(t, setup(r, configWith(t, map[string]any{"nodes": []string{"192.0.2.1", "192.0.2.2"}})), "Activate GetCapabilities DiscoverNew DiscoverNew CreateNetwork")
		f.must(t, setup(r, configWith(t, map[string]any{"nodes": []string{"192.0.2.2"}})), "Activate GetCapabilities DiscoverNew DiscoverDelete")
		f.set("DiscoverNew", "drop", 200)
		if err := setup(r, configWith(t, nil)); err != nil {
			t.Error(err)
		}
		if err := setup(r, configWith(t, map[string]any{"nodes": []string{"192.0.2.2"}})); err == nil {
			t.Error("no error of a driver that is away")
		}
	}
}
