package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Only portmap of a pod with published ports gets the condition, in its backend's language, and only if the
// configuration has none of its own.
func TestPortmapSparesLoopback(t *testing.T) {
	const ports = `, "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}`
	for _, tt := range []struct{ name, portmap, runtime, want string }{
		{"iptables", `"backend": "iptables"`, ports, `["!","-d","::1"]`},
		{"nftables", `"backend": "nftables"`, ports, `["ip6","daddr","!=","::1"]`},
		{"without ports", `"backend": "nftables"`, "", `null`},
		{"with a condition", `"conditionsV4": ["-i", "eth0"]`, ports, `null`},
		{"with a condition of IPv6", `"conditionsV6": ["-i", "eth0"]`, ports, `["-i","eth0"]`},
	} {
		n, err := (&cni{}).podNetwork([]byte(`{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}, {"type": "portmap", ` + tt.portmap + `}]` + tt.runtime + `}`))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got struct {
			ConditionsV6 json.RawMessage `json:"conditionsV6"`
		}
		if err := json.Unmarshal(n.list.Plugins[1].Bytes, &got); err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(string(got.ConditionsV6), " ", ""); text != tt.want && (text != "" || tt.want != "null") {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
		if text := string(n.list.Plugins[0].Bytes); strings.Contains(text, "conditions") {
			t.Errorf("%s: another plugin has %s", tt.name, text)
		}
	}
}
