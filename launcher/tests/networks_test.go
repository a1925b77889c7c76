package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/harness"
)

// backends are those of the CNI plugins that masquerade and forward ports.
func backends() []string { return []string{"iptables", "nftables"} }

// bridgeEntry is a network on a bridge with published ports, and more plugins.
func bridgeEntry(backend string, more ...string) string {
	return fmt.Sprintf(`{"name": "bridge", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0",
		"plugins": [
			{"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": %[1]q, "ipam": {"type": "host-local",
				"ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd00:88::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
			{"type": "portmap", "backend": %[1]q, "capabilities": {"portMappings": true}}%[2]s
		]}`, backend, strings.Join(append([]string{""}, more...), ", "))
}

// withWorld connects the machine to a namespace that stands for the world: 203.0.113.1 and
// 2001:db8::1; the machine is 203.0.113.2 and 2001:db8::2. The world has no route to the pods.
func (m *netMachine) withWorld() *netns { return m.worldBy("testup") }

// worldBy is withWorld by a link of that name.
func (m *netMachine) worldBy(uplink string) *netns {
	m.T.Helper()
	m.uplink = uplink
	world := newNetns(m.T)
	m.host.join(world, uplink, "203.0.113.2/24 2001:db8::2/64", "eth0", "203.0.113.1/24 2001:db8::1/64")
	return world
}

func TestPodsOnABridgeTalk(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend)+"]")
			world := m.withWorld()
			a := m.connect("a", harness.PodOf(server("s", "a for")), "bridge")
			b := m.connect("b", netPodDoc{harness.PodOf(server("s", "b for")), []map[string]any{published("web", "tcp", 18080, 8080, 1)}}, "bridge")
			nets := m.networksOf(b)
			if len(nets) != 1 || nets[0].Interface != "eth0" || nets[0].IP4 == nil || nets[0].IP4.Gateway != "10.88.0.1" {
				t.Fatalf("networks of b: %+v", nets)
			}
			ipA, ipB := m.networksOf(a)[0].address(false), nets[0].address(false)
			answers(t, "b for "+ipA, func() string { return fetchFrom(a, "s", ipB, 8080) })
			answers(t, "b for 10.88.0.1", func() string { return m.host.fetch(ipB, 8080) })
			m.host.serve("0.0.0.0", 9000, "host for")
			answers(t, "host for "+ipA, func() string { return fetchFrom(a, "s", "10.88.0.1", 9000) })
			world.serve("[::]", 9001, "world for")
			answers(t, "world for 203.0.113.2", func() string { return fetchFrom(a, "s", "203.0.113.1", 9001) })
			answers(t, "world for 2001:db8::2", func() string { return fetchFrom(a, "s", "2001:db8::1", 9001) })
			// The published port: from the machine, over loopback, and from the world.
			for _, from := range []struct {
				n       *netns
				address string
			}{{m.host, "203.0.113.2"}, {m.host, "127.0.0.1"}, {world, "203.0.113.2"}} {
				answers(t, "true", func() string { return fmt.Sprint(strings.HasPrefix(from.n.fetch(from.address, 18080), "b for ")) })
			}
			m.Must("stop", "b")
			if got := world.fetch("203.0.113.2", 18080); got != "" {
				t.Errorf("the port of a pod that is stopped answers %q", got)
			}
		})
	}
}

func TestLoopbackAndSamplePlugins(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[
		{"name": "lo", "aci": "kurma.io/stager/lo-netplugin", "default": true},
		{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "veth{{shortuuid}}", "subnet": "10.99.0.0/24"}
	]`)
	byDefault := m.connect("default", harness.PodOf(server("s", "default")))
	if nets := m.networksOf(byDefault); len(nets) != 1 || nets[0].address(false) != "127.0.0.1" || nets[0].address(true) != "::1" {
		t.Errorf("a pod that asks for no network has %+v", nets)
	}
	p := m.connect("p", harness.PodOf(server("s", "p for")), "lo", "sample")
	nets := m.networksOf(p)
	if len(nets) != 2 || nets[1].Interface != "veth"+p.UUID[:8] || nets[1].address(false) != "10.99.0.2" {
		t.Fatalf("networks %+v", nets)
	}
	answers(t, "p for 10.99.0.1", func() string { return m.host.fetch("10.99.0.2", 8080) })
	m.checkShown(p, nets)
	hosts, err := os.ReadFile("/etc/resolv.conf")
	if got := p.Exec("s", "/bin/cat", "/etc/resolv.conf").Stdout; err != nil || got != string(hosts) {
		t.Errorf("resolv.conf of a pod whose networks have no name servers: %q, want the host's %q, %v", got, hosts, err)
	}
	alone := m.connect("alone", harness.PodOf(server("s", "alone")), "none")
	if nets := m.networksOf(alone); len(nets) != 0 {
		t.Errorf("a pod without networks has %+v", nets)
	}
}

// The folder of networks may be reached through a symbolic link, such as to a larger disk.
func TestTheNetworksFolderMayBeBehindALink(t *testing.T) {
	t.Parallel()
	const entries = `[{"name": "lo", "aci": "kurma.io/stager/lo-netplugin"}]`
	m := newNetMachine(t, entries)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(m.networks), link); err != nil {
		t.Fatal(err)
	}
	m.Config["networksDirectory"] = filepath.Join(link, "networks")
	m.reconfigure(entries)
	p := m.connect("p", harness.PodOf(suite.Shell("s", "sleep 1000")), "lo")
	if nets := m.networksOf(p); len(nets) != 1 || nets[0].address(false) != "127.0.0.1" {
		t.Errorf("networks %+v", nets)
	}
}

// checkShown checks that `inspect` shows the networks of a pod, and `network inspect` and `network list` the pod's networks.
func (m *netMachine) checkShown(p *harness.Pod, nets []netInfo) {
	m.T.Helper()
	var inspected struct{ Networks []netInfo }
	if err := json.Unmarshal([]byte(m.Must("inspect", "--json", p.UUID)), &inspected); err != nil {
		m.T.Fatal(err)
	}
	if diff := cmp.Diff(nets, inspected.Networks); diff != "" {
		m.T.Errorf("networks of ps (-) and inspect (+):\n%s", diff)
	}
	list := m.Must("network", "list", "--json")
	for _, n := range nets {
		var network struct {
			Configuration struct{ Name string }
			Pods          []struct {
				UUID string
				IP4  struct{ IP string }
			}
		}
		if err := json.Unmarshal([]byte(m.Must("network", "inspect", n.Name)), &network); err != nil {
			m.T.Fatal(err)
		}
		last := network.Pods[len(network.Pods)-1]
		if network.Configuration.Name != n.Name || last.UUID != p.UUID || last.IP4.IP != n.IP4.IP {
			m.T.Errorf("network inspect %s: %+v, want pod %s with %s as the last", n.Name, network, p.UUID, n.IP4.IP)
		}
		if want := fmt.Sprintf(`"name":%q,`, n.Name); !strings.Contains(list, want) {
			m.T.Errorf("network list: %s, want %s", list, want)
		}
	}
}
