package plan

import (
	"math"
	"strings"
	"testing"

	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/tests/clause"
)

func TestPortsBecomeSockets(t *testing.T) {
	clause.Covers(t, "C-PRT-03")
	port := func(name, protocol string, number, count uint, activated bool) types.Port {
		return types.Port{Name: types.ACName(name), Protocol: protocol, Port: number, Count: count, SocketActivated: activated}
	}
	pod := func(name string, p types.Port) types.ExposedPort {
		return types.ExposedPort{Name: types.ACName(name), HostPort: 1, PodPort: &p}
	}
	tests := []struct {
		name, clauses string
		ports         []types.Port
		exposed       []types.ExposedPort
		want          []Socket
		err           string
	}{
		{"none", "", nil, nil, nil, ""},
		{"not activated", "C-PRT-06", []types.Port{port("web", "tcp", 80, 1, false)}, nil, nil, ""},
		{
			"one of each", "C-PRT-01",
			[]types.Port{port("web", "tcp", 80, 1, true), port("dns", "UDP", 53, 1, true)},
			nil,
			[]Socket{{"web", "tcp", 80}, {"dns", "udp", 53}},
			"",
		},
		{
			"range", "C-PRT-03",
			[]types.Port{port("web", "tcp", 80, 3, true)},
			nil,
			[]Socket{{"web", "tcp", 80}, {"web", "tcp", 81}, {"web", "tcp", 82}},
			"",
		},
		{"protocol", "C-PRT-04", []types.Port{port("web", "sctp", 80, 1, true)}, nil, nil, `port "web": protocol "sctp"`},
		{"protocol of no socket", "C-PRT-04", []types.Port{port("web", "sctp", 80, 1, false)}, nil, nil, ""},
		{"a range that is not one", "C-PRT-04", []types.Port{port("web", "tcp", 80, math.MaxUint-79, true)}, nil, nil, `port "web": 18446744073709551536 ports from 80 on`},
		{"too many", "C-PRT-04", []types.Port{port("a", "tcp", 1, 65535, true), port("b", "udp", 1, 1, true)}, nil, nil, `port "b": more than 65535 sockets`},
		{
			"pod's port", "C-PRT-05",
			[]types.Port{port("web", "tcp", 80, 1, true)},
			[]types.ExposedPort{pod("web", port("web", "", 8080, 2, false)), pod("dns", port("dns", "udp", 53, 1, true))},
			[]Socket{{"web", "tcp", 8080}, {"web", "tcp", 8081}},
			"",
		},
		{
			"pod's wish", "C-PRT-05",
			[]types.Port{port("web", "tcp", 80, 1, false)},
			[]types.ExposedPort{pod("web", port("x", "udp", 81, 1, true))},
			[]Socket{{"web", "udp", 81}},
			"",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got, err := socketsOf(manifest.App{App: &types.App{Ports: test.ports}}, test.exposed)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPortNamesAreUnique(t *testing.T) {
	clause.Covers(t, "C-PRT-05")
	app := func(name string, ports ...types.ACName) manifest.App {
		a := manifest.App{Name: name, App: &types.App{}}
		for _, port := range ports {
			a.App.Ports = append(a.App.Ports, types.Port{Name: port, Protocol: "tcp", Port: 80})
		}
		return a
	}
	exposed := []types.ExposedPort{{Name: "web", HostPort: 1}}
	tests := []struct {
		name    string
		apps    []manifest.App
		exposed []types.ExposedPort
		warning string
		err     string
	}{
		{"unique", []manifest.App{app("a", "web", "dns"), app("b", "db")}, exposed, "", ""},
		{"in one app", []manifest.App{app("a", "web", "web")}, nil, "", `app "a": ports: "web": two ports`},
		{"in two apps", []manifest.App{app("a", "web"), app("b", "web")}, nil, `apps "a" and "b" both have a port named "web"`, ""},
		{"of another name exposed", []manifest.App{app("a", "db"), app("b", "db")}, exposed, `a port named "db"`, ""},
		{"exposed", []manifest.App{app("a", "web"), app("b", "web")}, exposed, "", `app "b": ports: "web": app "a" also has a port of that name`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			warnings, err := checkPortNames(test.apps, test.exposed)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if text := strings.Join(warnings, "; "); !strings.Contains(text, test.warning) || (text == "") != (test.warning == "") {
				t.Errorf("warnings %q, want %q", text, test.warning)
			}
		})
	}
}
