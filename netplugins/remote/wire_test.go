package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// checkWire compares the last request of each method with the lines of a golden file, METHOD BODY. The bodies have what
// Docker's daemon sends beyond the protocol's document: LocalDefault, empty lists of ports, Self and BindAddress.
func (f *fakeDriver) checkWire(t *testing.T, name string) {
	t.Helper()
	var got strings.Builder
	f.mu.Lock()
	for _, method := range slices.Sorted(maps.Keys(f.bodies)) {
		fmt.Fprintf(&got, "%s %s\n", method, f.bodies[method])
	}
	f.mu.Unlock()
	path := filepath.Join("testdata", "wire", name)
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; on the wire\n%s, want\n%s", err, got.String(), want)
	}
}

// A pod with ports and labels on a network whose driver has global scope.
func TestTheWireOfAGlobalDriver(t *testing.T) {
	f := newDriver(t)
	f.set("GetCapabilities", `{"Scope": "global"}`, 0)
	r, config := f.newRemote(t), configWith(t, map[string]any{
		"node": "192.0.2.1", "nodes": []string{"192.0.2.2"}, "capabilities": map[string]bool{"portMappings": true},
		"ipam":          []any{map[string]any{"subnet": "fd00:95::/64", "addressSpace": "GlobalDefault"}},
		"runtimeConfig": map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}},
		"args":          map[string]any{"cni": map[string]any{"labels": []any{map[string]string{"key": "tier", "value": "front"}}}},
	})
	if err := setup(r, config); err != nil {
		t.Fatal(err)
	}
	if err := add(r, config, "pod-1"); err != nil {
		t.Fatal(err)
	}
	f.checkWire(t, "global")
}

// Docker's daemon sends every driver its generic options, empty ones too, and whether the network has IPv6: drivers read both
// without a look at whether they are there.
func TestCreateNetworkHasTheOptionsThatDockerAlwaysSends(t *testing.T) {
	v6 := []any{map[string]any{"subnet": "fd00:95::/64"}}
	for _, tt := range []struct {
		name string
		keys map[string]any
		want string
	}{
		{"no options", nil, `{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{}}`},
		{"no addresses", map[string]any{"ipam": []any{}}, `{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{}}`},
		{"empty options", map[string]any{"options": map[string]any{}}, `{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{}}`},
		{"IPv6", map[string]any{"ipam": v6}, `{"com.docker.network.enable_ipv6":true,"com.docker.network.generic":{}}`},
		{"options", map[string]any{"options": map[string]any{"mode": "l2"}}, `{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{"mode":"l2"},"mode":"l2"}`},
		{
			"IPv6 by the options",
			map[string]any{"ipam": v6, "options": map[string]any{enableIPv6Option: "false"}},
			`{"com.docker.network.enable_ipv6":"false","com.docker.network.generic":{"com.docker.network.enable_ipv6":"false"}}`,
		},
	} {
		f := newDriver(t)
		f.must(t, setup(f.newRemote(t), configWith(t, tt.keys)), callsOfSetup)
		if want := `"Options":` + tt.want + `,"IPv4Data"`; !strings.Contains(f.bodies["CreateNetwork"], want) {
			t.Errorf("%s: %s, want %s", tt.name, f.bodies["CreateNetwork"], want)
		}
	}
}

// A driver that knows nothing of EndpointOperInfo, or does not answer to it, connects pods all the same.
func TestDriversWithoutOperationalInfo(t *testing.T) {
	for _, answer := range []string{`{"Err": "no such method"}`, "drop"} {
		f := newDriver(t)
		f.set("EndpointOperInfo", answer, 0)
		r, config := f.newRemote(t), configWith(t, nil)
		if err := setup(r, config); err != nil {
			t.Fatal(err)
		}
		if err := add(r, config, "pod-1"); err != nil {
			t.Errorf("%s: %v", answer, err)
		}
	}
}
