package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// checkWire compares the requests, sorted and each once, with the lines of a golden file, METHOD BODY. The bodies have
// what Docker's daemon sends beyond the protocol's document: generic options, LocalDefault, empty lists of ports, Self
// and BindAddress.
func (f *fakeDriver) checkWire(t *testing.T, name string) {
	t.Helper()
	f.mu.Lock()
	got := strings.Join(slices.Compact(slices.Sorted(slices.Values(f.lines))), "")
	f.mu.Unlock()
	path := filepath.Join("testdata", "wire", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%v; on the wire\n%s, want\n%s", err, got, want)
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

// Docker's daemon always sends the generic options, also empty ones, and whether the network has IPv6. Some drivers read
// both without a check.
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

// The files docker-* have the requests that dockerd 20.10.24 sent to testdriver for the same networks, with a container
// on each. The plugin adds to them the network's options outside generic, and "self" as the protocol's document spells it.
func TestTheWireIsDockers(t *testing.T) {
	withPort := func(port uint16, proto string) map[string]any {
		return map[string]any{"portMappings": []any{map[string]any{"hostPort": port, "containerPort": 80, "protocol": proto}}}
	}
	subnet := func(prefix, gateway string) map[string]any {
		return map[string]any{"subnet": prefix, "gateway": gateway}
	}
	ports := map[string]bool{"portMappings": true}
	aux := subnet("10.2.0.0/24", "10.2.0.1/24")
	aux["auxAddresses"] = map[string]string{"router": "10.2.0.2/24"}
	for name, keys := range map[string]map[string]any{
		"docker-plain":   {"ipam": []any{subnet("10.1.0.0/24", "10.1.0.1/24")}},
		"docker-options": {"ipam": []any{aux}, "options": map[string]any{"mode": "l2"}, "capabilities": ports, "runtimeConfig": withPort(8080, "tcp")},
		"docker-ipv6": {
			"ipam":         []any{subnet("10.3.0.0/24", "10.3.0.1/24"), subnet("fd00:95::/64", "fd00:95::1/64")},
			"capabilities": ports, "runtimeConfig": withPort(8081, "udp"),
		},
		"docker-node": {"node": "192.0.2.1"},
	} {
		f := newDriver(t)
		f.set("GetCapabilities", `{"Scope": "global"}`, 0)
		r, config := f.newRemote(t), configWith(t, keys)
		if err := errors.Join(setup(r, config), add(r, config, "pod-1"), del(r, config, "pod-1"), r.Remove(context.Background(), config)); err != nil {
			t.Fatal(err)
		}
		recorded, err := os.ReadFile(filepath.Join("testdata", "wire", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(recorded)) {
			method, body, _ := strings.Cut(line, " ")
			got, want := likeDocker(t, f.bodies[method]), likeDocker(t, body)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s\n%v, want\n%v", name, method, got, want)
			}
		}
	}
}

// likeDocker decodes a request without what the plugin adds to Docker's, and without the values of IDs and paths.
func likeDocker(t *testing.T, body string) map[string]any {
	t.Helper()
	body = regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllString(body, `"ID"`)
	body = regexp.MustCompile(`"SandboxKey":"/[^"]*"`).ReplaceAllString(body, `"SandboxKey":"/"`)
	var request map[string]any
	if err := json.Unmarshal([]byte(body), &request); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if node, is := request["DiscoveryData"].(map[string]any); is {
		delete(node, "self")
	}
	options, _ := request["Options"].(map[string]any)
	generic, _ := options[genericOption].(map[string]any)
	for key := range generic {
		delete(options, key)
	}
	return request
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
