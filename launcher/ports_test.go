package main

import (
	"fmt"
	"strings"
	"testing"
)

// The launcher forwards no ports, and warns of each that the pod asks for.
func TestPortsAreNotForwarded(t *testing.T) {
	h := newHost(t)
	h.run("image", "import", h.image("ports.aci", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/ports",
		"app":{"exec":["/x"],"user":"0","group":"0","ports":[{"name":"http","protocol":"tcp","port":80},{"name":"dns","protocol":"udp","port":53}]}}`))
	warning := func(port string, number int, advice string) string {
		return fmt.Sprintf("launcher: warning: pod \"p\": port %q: host port %d is not forwarded; %s\n", port, number, advice)
	}
	tests := []struct{ name, net, ports, want string }{
		{"none", "", "null", ""},
		{"two", "", `[{"name":"http","hostPort":8080},{"name":"dns","hostPort":53}]`, warning("http", 8080, "use --net host (the app listens on 80)") + warning("dns", 53, "use --net host (the app listens on 53)")},
		{"of the host's network", "host", `[{"name":"http","hostPort":8080},{"name":"dns","hostPort":53}]`, warning("http", 8080, "the app listens on 80")},
		{"of the pod's own", "host", `[{"name":"http","hostPort":8080,"podPort":{"name":"http","protocol":"tcp","port":8080}}]`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := h.text("p.json", fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":%q}}],"ports":%s}`,
				h.listed()["example.com/ports"].ID, tt.ports))
			var net []string
			if tt.net != "" {
				net = []string{"--net", tt.net}
			}
			r := h.try(append(append([]string{"run", "--detach"}, net...), pod)...)
			defer h.run("rm", "--force", "p")
			if r.code != 0 || r.stderr != tt.want || strings.Count(r.stdout, "\n") != 1 {
				t.Errorf("%+v, want stderr %q", r, tt.want)
			}
			v := h.try(append(append([]string{"validate"}, net...), pod)...)
			if want := strings.ReplaceAll(tt.want, "launcher: warning:", "warning:"); v.code != 0 || !strings.HasPrefix(v.stdout, want) || strings.Count(v.stdout, "warning: ") != strings.Count(want, "warning: ") {
				t.Errorf("validate: %+v, want %q", v, want)
			}
		})
	}
}
