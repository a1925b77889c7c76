package podplan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
