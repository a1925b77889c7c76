package podplan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/launcher/networks"
)

// A network's plugins get the limit that the stager reads. One that the stager refuses is refused before a plugin is started.
func TestTheLimitOfANetworkIsReadAsTheStagerDoes(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{`{"default":true,"limit":"1M"}`, `{"ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}`},
		{`{"default":true,"limit":"10K"}`, `{"ingressRate":80000,"ingressBurst":8000,"egressRate":80000,"egressBurst":8000}`},
		{`{"default":true,"limit":"1.5Ki"}`, `{"ingressRate":12288,"ingressBurst":1228,"egressRate":12288,"egressBurst":1228}`},
		{`{"default":true,"limit":"9E"}`, `{"ingressRate":18446744073709551608,"ingressBurst":1844674407370955160,"egressRate":18446744073709551608,"egressBurst":1844674407370955160}`},
		{`{"default":true,"limit":"10Q"}`, `isolator resource/network-bandwidth: {"default":true,"limit":"10Q"}: limit must be a quantity`},
		{`{"default":true,"limit":-1}`, `{"default":true,"limit":-1}: limit must be above 0`},
		{`{"limit":"1M"}`, `{"limit":"1M"}: default must be true`},
		{`"1M"`, `isolator resource/network-bandwidth: "1M": must be an object`},
	} {
		p := newPlanner()
		p.Networks = []networks.Network{{Name: "n", Entry: `{"name":"n","aci":"x","capabilities":{"bandwidth":true}}`}}
		pod := fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"}}],
			"isolators":[{"name":"resource/network-bandwidth","value":%s}]}`, tt.value)
		planned, _, err := p.FromManifest("p.json", []byte(pod), Options{Networks: []networks.Request{{Name: "n"}}})
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.value, err, tt.want)
			}
			continue
		}
		var config struct {
			RuntimeConfig struct{ Bandwidth json.RawMessage }
		}
		if err := json.Unmarshal([]byte(planned.Networks[0].Config), &config); err != nil || string(config.RuntimeConfig.Bandwidth) != tt.want {
			t.Errorf("%s: %v, %s, want %s", tt.value, err, config.RuntimeConfig.Bandwidth, tt.want)
		}
	}
}

// The name servers of the options are those of the pod's first network, also as what its plugin is told.
func TestNameServersOfTheOptionsAreTheNetworks(t *testing.T) {
	p := newPlanner()
	p.Networks = []networks.Network{
		{Name: "n", Default: true, Entry: `{"name":"n","aci":"x","capabilities":{"dns":true}}`},
		{Name: "m", Entry: `{"name":"m","aci":"x"}`},
	}
	servers := []string{"192.0.2.1", "192.0.2.2"}
	request := networks.Request{Name: "n", DNS: networks.DNS{Nameservers: []string{"192.0.2.9"}, Search: []string{"example.com"}}}
	for _, tt := range []struct {
		options Options
		want    networks.DNS
	}{
		{Options{NameServers: servers}, networks.DNS{Nameservers: servers}},
		{Options{NameServers: servers, Networks: []networks.Request{request, {Name: "m"}}}, networks.DNS{Nameservers: servers, Search: []string{"example.com"}}},
	} {
		plan, _, err := p.FromImage("example.com/my_app.1", nil, tt.options)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			RuntimeConfig struct{ DNS struct{ Servers []string } }
		}
		if err := json.Unmarshal([]byte(plan.Networks[0].Config), &config); err != nil || !slices.Equal(config.RuntimeConfig.DNS.Servers, servers) {
			t.Errorf("%s, %v", plan.Networks[0].Config, err)
		}
		if diff := cmp.Diff(&tt.want, plan.Networks[0].DNS); diff != "" {
			t.Error(diff)
		}
		p.Networks[0].Default = false
		if _, _, err := p.FromImage("example.com/my_app.1", nil, Options{NameServers: servers, NoNetwork: tt.options.Networks != nil}); !errors.Is(err, errNoNameServers) {
			t.Errorf("without a network: %v", err)
		}
	}
	if request.DNS.Nameservers[0] != "192.0.2.9" {
		t.Error("the request has changed")
	}
}
