package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/harness"
)

// publishing starts the image of a server, whose port 80 is published.
func (m *netMachine) publishing(name string, args ...string) *harness.Pod {
	m.T.Helper()
	all := append([]string{"run", "--json", "--detach", "--name", name}, args...)
	return m.Adopt(m.Must(append(all, "example.com/web")...))
}

// page is what the server of the image example.com/web sends from a port of the host.
func (m *netMachine) page(port int) string { return bodyOf(m.host.get("203.0.113.2", port, "/")) }

// packagedNetwork is the network of the package kurma-netplugins, with the image that make has built.
func packagedNetwork(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../tools/release/debian/kurma-netplugins/kurma.json")
	if err != nil {
		t.Fatal(err)
	}
	return withBuiltPlugin(string(text))
}

// withBuiltPlugin replaces the plugin image of the package by the one that make has built.
func withBuiltPlugin(entry string) string {
	return strings.ReplaceAll(entry, "file:///usr/share/kurma/cni-netplugin.aci", "file://"+pluginACI("cni"))
}

// packaged gives the machine the networks of the package kurma-netplugins.
func packaged(t *testing.T) harness.Option {
	return func(b *harness.Machine) {
		dir := t.TempDir()
		b.Config["containerNetworksDirectory"] = dir
		if err := os.WriteFile(filepath.Join(dir, "kurma.json"), []byte(packagedNetwork(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// run --publish publishes ports of an image's pod on the packaged network, which is the default, and a pod's ports go with
// it, however it ends.
func TestRunPublishesPorts(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "[]", packaged(t))
	m.withWorld()
	p := m.publishing("p", "-p", "8080:80", "--publish", "127.0.0.1:8081:80", "-p", "5353:53/udp")
	answerUDP(p, 53, "udp")
	answers(t, "web", func() string { return m.page(8080) })
	answers(t, "web", func() string { return bodyOf(m.host.get("127.0.0.1", 8081, "/")) })
	answers(t, "udp", func() string { return m.host.askUDP("203.0.113.2", 5353) })
	m.host.refuses(t, "203.0.113.2:8081")
	const shown = "8080->80/tcp, 127.0.0.1:8081->80/tcp, 5353->53/udp"
	if out := m.Must("ps", "--no-trunc"); !strings.Contains(out, shown) {
		t.Errorf("ps prints\n%s, want %q", out, shown)
	}
	var inspected struct{ Ports []any }
	if err := json.Unmarshal([]byte(m.Must("inspect", "p")), &inspected); err != nil || len(inspected.Ports) != 3 {
		t.Errorf("inspect: %v, ports %v", err, inspected.Ports)
	}
	r := m.Launcher("run", "-p", "8080:80", "example.com/web")
	if r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, `port 8080/tcp is published by pod "p"`) {
		t.Errorf("a port of another pod: %+v", r)
	}

	m.Must("restart", "p")
	answers(t, "web", func() string { return m.page(8080) })
	m.Must("stop", "p")
	m.host.refuses(t, "203.0.113.2:8080")
	if out := m.Must("ps", "--all"); strings.Contains(out, "8080") {
		t.Errorf("ps shows the ports of a pod that has ended:\n%s", out)
	}

	p = m.publishing("killed", "-p", "8080:80")
	if err := syscall.Kill(p.Stager, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.Launcher("wait", "killed")
	m.host.refuses(t, "203.0.113.2:8080")

	m.publishing("orphan", "-p", "8080:80")
	m.kill("orphan") // its monitor
	m.publishing("second", "-p", "8080:80")
	answers(t, "web", func() string { return m.page(8080) })
	m.Must("rm", "--force", "second", "orphan")

	p = m.publishing("booted", "-p", "8080:80")
	m.restart(p)
	m.host.refuses(t, "203.0.113.2:8080")
	m.publishing("again", "-p", "8080:80")
	answers(t, "web", func() string { return m.page(8080) })
}

// run --publish chooses a port of the host if none is asked for, and publishes ranges.
func TestRunPublishesAChosenPort(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "[]", packaged(t))
	m.withWorld()
	m.publishing("chosen", "-p", "80", "-p", "8090-8092:79-81")
	var shown struct {
		Ports []struct{ HostPort, ContainerPort int }
	}
	if err := json.Unmarshal([]byte(m.Must("inspect", "chosen")), &shown); err != nil || len(shown.Ports) != 4 || shown.Ports[0].ContainerPort != 80 {
		t.Fatalf("inspect: %v, ports %v", err, shown.Ports)
	}
	answers(t, "web", func() string { return m.page(shown.Ports[0].HostPort) })
	answers(t, "web", func() string { return m.page(8091) })
	m.Must("restart", "chosen")
	answers(t, "web", func() string { return m.page(shown.Ports[0].HostPort) })
	if r := m.Launcher("run", "--net", "none", "-p", "80", "example.com/web"); r.Code != 2 {
		t.Errorf("a port without a network: %+v", r)
	}
}

// The packages and a registry are enough for a published page. The web server is not root, and serves the page that its image has
// in a volume; the host and the world read the page.
func TestAnImageOfARegistryIsPublished(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "[]", packaged(t), ownPlugins)
	world, inside := m.withWorld(), m.host.enter()
	registry, _ := dockerregistry.Run(t, inside...)
	source := realImages()[0].push(t, registry, inside...)
	m.Must("run", "--detach", "--name", "web", "-p", "8080:8080", source)
	m.LayersAreNow()
	for _, client := range []*netns{m.host, world} {
		answers(t, "Welcome to nginx!", func() string { return bodyOf(client.get("203.0.113.2", 8080, "/")) })
	}
	m.Must("stop", "web")
	m.host.refuses(t, "203.0.113.2:8080")
}

// The packaged network is the default, and a person can choose another one, or replace it.
func TestTheDefaultNetworkCanBeReplaced(t *testing.T) {
	t.Parallel()
	const own = `{"name": "kurma", "aci": "kurma.io/stager/lo-netplugin"}`
	for _, tt := range []struct{ name, networks, net, want string }{
		{"default", "[]", "", "kurmaeth0"},
		{"none", "[]", "none", ""},
		{"host", "[]", "host", ""},
		{"another", `[{"name": "lo", "aci": "kurma.io/stager/lo-netplugin"}]`, "lo", "lo"},
		{"replaced", "[" + own + "]", "", ""},
		{"asked for", "[" + own + "]", "kurma", "kurma"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newNetMachine(t, tt.networks, packaged(t))
			args := []string{"run", "--detach", "example.com/web"}
			if tt.net != "" {
				args = append(args, "--net", tt.net)
			}
			m.Must(args...)
			if out := m.Must("ps", "--format", "{{range .Networks}}{{.Name}}{{.Interface}}{{end}}"); strings.TrimSpace(out) != tt.want {
				t.Errorf("networks %q, want %q", out, tt.want)
			}
		})
	}
}

// A port that no network of the pod publishes is an error of one line that says what to do, and nothing is started.
func TestAPortThatNoNetworkPublishesIsAnError(t *testing.T) {
	t.Parallel()
	lo := `{"name": "lo", "aci": "kurma.io/stager/lo-netplugin"}`
	hostNetwork := harness.PodOf(suite.Shell("s", "sleep 1000"))
	hostNetwork.Isolators = []any{map[string]any{"name": "os/linux/namespaces", "value": map[string]string{"net": "host"}}}
	for _, tt := range []struct {
		networks string
		net      []string
		want     string
	}{
		{"", nil, "the configuration has no network; the package kurma-netplugins has one"},
		{lo, nil, "no network of the configuration has the capability portMappings"},
		{lo + "," + bridgeEntry("iptables"), nil, "no network is the default; want --net bridge"},
		{lo + "," + bridgeEntry("iptables"), []string{"--net", "lo"}, "the pod's networks lack the capability portMappings; want --net bridge"},
		{bridgeEntry("iptables"), []string{"host"}, "the pod is connected to no network"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			m := newNetMachine(t, "["+tt.networks+"]")
			args := append([]string{"run", "--detach", "--publish", "8080:80"}, tt.net...)
			if len(tt.net) == 1 {
				args[len(args)-1] = m.Write("pod.json", hostNetwork)
			} else {
				args = append(args, "example.com/web")
			}
			r := m.Launcher(args...)
			want := "port 8080->80/tcp cannot be published: " + tt.want
			if r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%+v, want %q", r, want)
			}
			if out := m.Must("ps", "--all", "--quiet"); out != "" {
				t.Errorf("pods %s", out)
			}
		})
	}
}

// What generate prints publishes the same ports, also one that run has chosen.
func TestAGeneratedManifestPublishesThePorts(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "[]", packaged(t))
	m.withWorld()
	m.publishing("p", "-p", "8080:80", "--publish", "127.0.0.1:8081:80", "-p", "80")
	ports := func() string {
		_, ports, _ := strings.Cut(m.Must("ps", "--json"), `"ports":`)
		ports, _, _ = strings.Cut(ports, "]")
		return ports
	}
	want := ports()
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte(m.Must("generate", "p")), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Must("rm", "--force", "p")
	m.Adopt(m.Must("run", "--json", "--detach", file))
	if have := ports(); have != want {
		t.Errorf("ports %s, want %s", have, want)
	}
	answers(t, "web", func() string { return m.page(8080) })
	answers(t, "web", func() string { return bodyOf(m.host.get("127.0.0.1", 8081, "/")) })
}
