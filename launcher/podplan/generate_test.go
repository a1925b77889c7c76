package podplan

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// The ports of options become ports of the manifest, beside those that it has, and networks options of run.
func TestAGeneratedManifestHasThePortsOfOptions(t *testing.T) {
	p := newPlanner()
	p.Volumes = named{"/volumes"}
	p.Networks = []networks.Network{{Name: "n", Entry: `{"name":"n","aci":"x","capabilities":{"portMappings":true,"ips":true}}`}}
	const document = `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"},
		"app":{"exec":["/x"],"user":"0","group":"0","ports":[{"name":"published-81","protocol":"tcp","port":8000,"count":2}]}}],
		"ports":[{"name":"published-81","hostPort":90}]}`
	request, err := networks.ParseRequest("n:ips=192.0.2.1,label=a=b")
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Networks: []networks.Request{request}, NameServers: []string{"192.0.2.9"}, AddHosts: []pods.Host{{Name: "db", Address: netip.MustParseAddr("2001:db8::1")}},
		ExitPolicy: "failure", Restart: "always", GracePeriod: "7s",
		Publish: []networks.PortMapping{
			{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"},
			{HostPort: 81, ContainerPort: 8080, Protocol: "udp", HostIP: "127.0.0.1"},
			{HostPort: 81, ContainerPort: 8080, Protocol: "tcp"},
		},
	}
	plan, _, err := p.FromManifest("p.json", []byte(document), options)
	if err != nil {
		t.Fatal(err)
	}
	const want = "--exit-policy failure --restart always --stop-timeout 7 --net n:ips=192.0.2.1,label=a=b --dns 192.0.2.9 --add-host db:2001:db8::1"
	if words := strings.Join(plan.Options, " "); words != want {
		t.Errorf("options %q, want %q", words, want)
	}
	generated, err := Generate(plan, p.Volumes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(generated)
	if err != nil {
		t.Fatal(err)
	}
	options.Publish = nil
	again, warnings, err := p.FromManifest("p.json", text, options)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %q of %s", err, warnings, text)
	}
	if diff := cmp.Diff(plan.Ports, again.Ports); diff != "" {
		t.Errorf("%s of %s", diff, text)
	}
	if err := decided(t, string(text)); err != nil {
		t.Errorf("the stager refuses %s: %v", text, err)
	}
	if words := (Options{NoNetwork: true}).runOptions(); strings.Join(words, " ") != "--net none" {
		t.Errorf("without a network: %q", words)
	}
	if text := (networks.Request{Name: "n"}).String(); text != "n" {
		t.Errorf("a request without a text is %q", text)
	}
}

// The size of the terminal of a run is of that run alone.
func TestAGeneratedManifestHasNoSizeOfATerminal(t *testing.T) {
	p := newPlanner()
	plan, _, err := p.FromImage("example.com/my_app.1", nil, Options{App: AppOptions{TTY: true, TTYSize: "101x33"}})
	if err != nil {
		t.Fatal(err)
	}
	plan.Image = "example.com/my_app.1" // as the daemon keeps it
	generated, err := Generate(plan, named{"/volumes"})
	if err != nil {
		t.Fatal(err)
	}
	app := listIn(generated, "apps")[0].(map[string]any)
	want := []any{map[string]any{"name": names.TTYAnnotation, "value": "true"}}
	if diff := cmp.Diff(want, app["annotations"]); diff != "" {
		t.Error(diff)
	}
}
