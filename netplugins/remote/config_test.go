package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestWhatAPodAsksForIsPassedOn(t *testing.T) {
	f := newDriver(t)
	r := f.newRemote(t)
	config := configWith(t, map[string]any{
		"runtimeConfig": map[string]any{
			"mac": "02:00:00:00:00:09", "ips": []string{"10.1.0.77"},
			"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}},
		},
		"args": map[string]any{"cni": map[string]any{"labels": []any{map[string]string{"key": "tier", "value": "front"}}}},
	})
	f.set("CreateEndpoint", "{}", 200)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	const options = `"Options":{"com.docker.network.endpoint.exposedports":[{"Proto":6,"Port":80}],"com.docker.network.generic":{"tier":"front"},` +
		`"com.docker.network.portmap":[{"Proto":6,"IP":"","Port":80,"HostIP":"127.0.0.1","HostPort":8080,"HostPortEnd":8080}],"tier":"front"}`
	for _, method := range []string{"CreateEndpoint", "Join", "ProgramExternalConnectivity"} {
		if !strings.Contains(f.bodies[method], options) {
			t.Errorf("%s: %s, want %s", method, f.bodies[method], options)
		}
	}
	if want := `"Interface":{"Address":"10.1.0.77/24","AddressIPv6":"","MacAddress":"02:00:00:00:00:09"}`; !strings.Contains(f.bodies["CreateEndpoint"], want) {
		t.Errorf("CreateEndpoint: %s, want %s", f.bodies["CreateEndpoint"], want)
	}
	if err := add(r, config, "pod-2"); err == nil || !strings.Contains(err.Error(), "is taken") {
		t.Errorf("a second pod with the address: %v", err)
	}
	f.set("CreateEndpoint", `{"Interface": {"MacAddress": "02:00:00:00:00:09"}}`, 200)
	f.must(t, del(r, config, "pod-1"), callsOfDel)
	if err := add(r, config, "pod-1"); err == nil || !strings.Contains(err.Error(), "was given MacAddress") {
		t.Errorf("a driver that answers the MAC address that it was given: %v", err)
	}
}

func TestConfigurationErrors(t *testing.T) {
	for _, tt := range []struct{ key, value, words string }{
		{"drivr", `"x"`, "drivr"},
		{"driver", `""`, "driver: missing"},
		{"driver", `"../x"`, "not the name"},
		{"ipam", `[{}]`, "ipam[0]: subnet: missing"},
		{"ipam", `[{"subnet": "10.0.0.0"}]`, "10.0.0.0"},
		{"ipam", `[{"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}]`, "ipam[0]: gateway: 10.1.0.1 is not in"},
		{"ipam", `[{"subnet": "10.0.0.0/24", "range": "10.0.1.0/25"}]`, "range"},
		{"ipam", `[{"subnet": "10.0.0.0/24", "auxAddresses": {"a": "b"}}]`, "auxAddresses: a"},
		{"capabilities", `{"bandwidth": true}`, "bandwidth"},
		{"node", `"here"`, "node"},
	} {
		if _, err := parse(configWith(t, map[string]any{tt.key: json.RawMessage(tt.value)})); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s %s: %v", tt.key, tt.value, err)
		}
	}
}

func TestAnswersBecomeALink(t *testing.T) {
	var j joined
	if err := json.Unmarshal([]byte(`{"InterfaceName": {"SrcName": "veth1", "DstPrefix": "eth"}, "Gateway": "10.1.0.1", "GatewayIPv6": "fe80::1",
		"StaticRoutes": [{"Destination": "10.8.0.0/16", "RouteType": 0, "NextHop": "10.1.0.9"}, {"Destination": "10.9.0.0/16", "RouteType": 1}]}`), &j); err != nil {
		t.Fatal(err)
	}
	l, err := j.link(address{Address: "10.1.0.3/24", AddressIPv6: "fd00::3/64"})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(l.result())
	const want = `{"ip4":{"ip":"10.1.0.3/24","gateway":"10.1.0.1","routes":[{"dst":"10.9.0.0/16"},{"dst":"10.8.0.0/16","gw":"10.1.0.9"}]},"ip6":{"ip":"fd00::3/64","gateway":"fe80::1"}}`
	if string(got) != want {
		t.Errorf("result %s, want %s", got, want)
	}
	if _, err := settle(address{}, nil); err == nil {
		t.Error("an endpoint without an address")
	}
}

func TestOptionsOfAnIPv6Network(t *testing.T) {
	s, err := parse(configWith(t, map[string]any{"ipam": []any{map[string]any{"subnet": "fd00:7::/64", "gateway": "fd00:7::1"}}}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{enableIPv6Option: true, genericOption: map[string]any{}}
	if c := s.creation("x"); !reflect.DeepEqual(c.Options, want) || len(c.IPv4Data) != 0 || c.IPv6Data[0].Gateway != "fd00:7::1" {
		t.Errorf("%+v", c)
	}
}
