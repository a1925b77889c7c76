package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// cniEntry is a network of cni-netplugin; more are its other keys.
func cniEntry(name, more string) string {
	return fmt.Sprintf(`{"name": %q, "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0", %s}`, name, more)
}

// Must be pods that the test starts: a server on each kind of network, which a client reaches where the
// kind lets it.
func TestKindsOfNetworks(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+strings.Join([]string{
		cniEntry("ptp", `"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}`),
		cniEntry("macvlan", `"type": "macvlan", "master": "testup", "ipam": {"type": "host-local", "subnet": "203.0.113.0/24", "rangeStart": "203.0.113.100"}`),
		cniEntry("static", `"type": "bridge", "bridge": "brs", "isGateway": true, "capabilities": {"ips": true, "mac": true}, "ipam": {"type": "static", "addresses": [{"address": "10.90.0.7/24", "gateway": "10.90.0.1"}], "dns": {"nameservers": ["10.90.0.1"], "search": ["example.com"]}}`),
		cniEntry("chain", `"plugins": [
			{"type": "bridge", "bridge": "brc", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.91.0.0/24"}},
			{"type": "tuning", "sysctl": {"net.ipv4.conf.all.log_martians": "1"}, "mtu": 1400},
			{"type": "firewall", "backend": "iptables"}]`),
	}, ",")+"]")
	world := m.withWorld()
	serve := harness.PodOf(server("s", "for"))

	ptp := m.connect("ptp", serve, "ptp")
	answers(t, "for "+m.networksOf(ptp)[0].IP4.Gateway, func() string { return m.host.fetch("10.89.0.2", 8080) })

	macvlan := m.connect("macvlan", serve, "macvlan")
	answers(t, "for 203.0.113.1", func() string { return world.fetch(m.networksOf(macvlan)[0].address(false), 8080) })

	static := m.connect("static", serve, "static")
	answers(t, "for 10.90.0.1", func() string { return m.host.fetch("10.90.0.7", 8080) })
	if got := static.Exec("s", "/bin/cat", "/etc/resolv.conf").Stdout; got != "nameserver 10.90.0.1\nsearch example.com\n" {
		t.Errorf("resolv.conf of a network with name servers: %q", got)
	}
	if got := static.Exec("s", "/bin/cat", "/etc/hosts").Stdout; !strings.HasSuffix(got, "\n10.90.0.7\tstatic\n") {
		t.Errorf("hosts of a pod with an address: %q", got)
	}
	asked := m.connect("asked", serve, "static:ips=10.90.0.9/24,mac=0a:58:0a:5a:00:09,dns=9.9.9.9")
	if nets := m.networksOf(asked); nets[0].address(false) != "10.90.0.9" {
		t.Errorf("networks of a pod that asked for an address: %+v", nets)
	}
	if got := asked.Exec("s", "/bin/cat", "/sys/class/net/eth0/address").Stdout; got != "0a:58:0a:5a:00:09\n" {
		t.Errorf("address of the link %q", got)
	}
	if got := asked.Exec("s", "/bin/cat", "/etc/resolv.conf").Stdout; got != "nameserver 9.9.9.9\n" {
		t.Errorf("resolv.conf of a pod with name servers of its own: %q", got)
	}

	chain := m.connect("chain", serve, "chain", "ptp:search=corp.example")
	hosts, err := os.ReadFile("/etc/resolv.conf")
	var servers strings.Builder
	for line := range strings.Lines(string(hosts)) {
		if strings.HasPrefix(line, "nameserver ") {
			servers.WriteString(line)
		}
	}
	if got := chain.Exec("s", "/bin/cat", "/etc/resolv.conf").Stdout; err != nil || got != servers.String()+"search corp.example\n" {
		t.Errorf("resolv.conf of a pod with a search domain alone: %q, want the host's name servers %q, %v", got, &servers, err)
	}
	if nets := m.networksOf(chain); len(nets) != 2 || nets[0].Interface != "eth0" || nets[1].Interface != "eth1" {
		t.Fatalf("two networks: %+v", nets)
	}
	answers(t, "for 10.91.0.1", func() string { return m.host.fetch("10.91.0.2", 8080) })
	answers(t, "for "+m.networksOf(chain)[1].IP4.Gateway, func() string { return m.host.fetch(m.networksOf(chain)[1].address(false), 8080) })
	for path, want := range map[string]string{"/proc/sys/net/ipv4/conf/all/log_martians": "1", "/sys/class/net/eth0/mtu": "1400"} {
		if got := strings.TrimSpace(chain.Exec("s", "/bin/cat", path).Stdout); got != want {
			t.Errorf("%s is %q, want %s", path, got, want)
		}
	}
	if rules := m.host.run("iptables", "-S"); !strings.Contains(rules, "10.91.0.2/32") {
		t.Errorf("the firewall has no rule for the pod:\n%s", rules)
	}
	if r := m.Launcher("network", "validate"); r.Code != 0 {
		t.Errorf("network validate: %+v", r)
	}
}

// leaseAddresses runs dnsmasq in the world, for 203.0.113.50 to 60, and returns its file of leases.
func (n *netns) leaseAddresses() string {
	n.t.Helper()
	leases := filepath.Join(n.t.TempDir(), "leases")
	dnsmasq := n.command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--interface=eth0",
		"--bind-interfaces", "--dhcp-range=203.0.113.50,203.0.113.60,255.255.255.0,2m", "--dhcp-authoritative", "--dhcp-leasefile="+leases, "--pid-file=", "--log-facility=-", "--no-ping")
	if err := dnsmasq.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = dnsmasq.Process.Kill(); _ = dnsmasq.Wait() })
	harness.Eventually(n.t, "dnsmasq listens", func() bool { return strings.Contains(n.run("/bin/busybox", "netstat", "-lun"), ":67 ") })
	return leases
}

func TestAddressesByDHCP(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+cniEntry("dhcp", `"type": "macvlan", "master": "testup", "ipam": {"type": "dhcp"}`)+"]")
	world := m.withWorld()
	leases := world.leaseAddresses()
	p := m.connect("p", harness.PodOf(server("s", "for")), "dhcp")
	address := m.networksOf(p)[0].address(false)
	if !strings.HasPrefix(address, "203.0.113.5") && address != "203.0.113.60" {
		t.Fatalf("networks %+v", m.networksOf(p))
	}
	answers(t, "for 203.0.113.1", func() string { return world.fetch(address, 8080) })
	lease := func() string { data, _ := os.ReadFile(leases); return string(data) }
	if !strings.Contains(lease(), address) {
		t.Errorf("dnsmasq has leased %q", lease())
	}
	m.killPlugin("dhcp")
	m.Must("gc") // starts the plugin again, whose daemon takes over the lease
	if leased := lease(); strings.Count(leased, "\n") != 1 || !strings.Contains(leased, address) {
		t.Errorf("after the plugin's end, dnsmasq has leased %q", leased)
	}
	m.Must("stop", "p")
	// The message that gives the lease back is from 0.0.0.0, and Linux drops it at the server
	// (RFC 2131, 4.4.6, has the client's address there); what can be seen is that it was sent.
	log, err := os.ReadFile(filepath.Join(m.networks, "dhcp", "state", "dhcp.log"))
	if err != nil || !strings.Contains(string(log), "releasing lease") || strings.Contains(string(log), "failed") {
		t.Errorf("the lease is not given back: %v; the daemon says:\n%s", err, log)
	}
}

// A megabyte and a half in each direction, limited to a megabyte a second: the burst passes at once. The limit
// holds beside the rules of either backend.
func TestBandwidthOfAPodIsLimited(t *testing.T) {
	t.Parallel()
	const makeData = "dd if=/dev/zero of=%s/data bs=1024 count=1536 2>/dev/null"
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend, `{"type": "bandwidth", "capabilities": {"bandwidth": true}}`)+"]")
			doc := harness.PodOf(suite.Shell("s", fmt.Sprintf(makeData, "/tmp")+" && httpd -f -h /tmp -p 8080"))
			doc.Isolators = []any{harness.Isolator("resource/network-bandwidth", map[string]any{"default": true, "limit": "1M"})}
			p := m.connect("p", doc, "bridge")
			links := m.host.run("tc", "qdisc", "show")
			if !strings.Contains(links, "tbf") || !strings.Contains(links, "rate 8Mbit") {
				t.Errorf("no limit of 8 Mbit/s:\n%s", links)
			}
			here := t.TempDir()
			m.host.run("/bin/busybox", "sh", "-c", fmt.Sprintf(makeData, here))
			m.host.background(8080, "/bin/busybox", "httpd", "-f", "-h", here, "-p", "10.88.0.1:8080")
			address := m.networksOf(p)[0].address(false)
			harness.Eventually(t, "the server listens", func() bool { return strings.Contains(m.host.get(address, 8080, "/"), "HTTP") })
			for name, get := range map[string]func() string{
				"from the pod": func() string { return m.host.get(address, 8080, "/data") },
				"to the pod": func() string {
					return p.Exec("s", "/bin/sh", "-c", getScript("", "10.88.0.1", 8080, "/data")).Stdout
				},
			} {
				start := time.Now()
				got := len(get())
				took := time.Since(start)
				// 1.5 MB less the burst of 100 kB at 1 MB/s; a machine under load is only slower.
				if rate := float64(got) / took.Seconds(); got < 3<<19 || rate > 1.3e6 {
					t.Errorf("%s: %d bytes in %v, %.0f bytes a second", name, got, took, rate)
				}
			}
		})
	}
}

// The plugin firewall, which has no backend for nftables, lets a pod through a host that forwards nothing else, whatever
// masquerades the pod's packets.
func TestFirewallOfANetworkLetsItsPodsThrough(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			const network = `"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "ipMasqBackend": %q,
				"ipam": {"type": "host-local", "subnet": %q, "routes": [{"dst": "0.0.0.0/0"}]}`
			m := newNetMachine(t, "["+
				cniEntry("open", `"plugins": [{`+fmt.Sprintf(network, "bro", backend, "10.91.0.0/24")+`}, {"type": "firewall", "backend": "iptables"}]`)+","+
				cniEntry("closed", fmt.Sprintf(network, "brc", backend, "10.93.0.0/24"))+"]")
			world := m.withWorld()
			m.host.run("iptables", "-P", "FORWARD", "DROP")
			world.serve("0.0.0.0", 9000, "world for")
			doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
			open, closed := m.connect("open", doc, "open"), m.connect("closed", doc, "closed")
			answers(t, "world for 203.0.113.2", func() string { return fetchFrom(open, "s", "203.0.113.1", 9000) })
			if got := fetchFrom(closed, "s", "203.0.113.1", 9000); got != "" {
				t.Errorf("without the plugin the world answers %q", got)
			}
			m.Must("stop", "open")
			if rules := m.host.run("iptables", "-S"); strings.Contains(rules, "10.91.0.2") {
				t.Errorf("left: rules of a pod\n%s", rules)
			}
		})
	}
}

// What a pod asks for reaches the plugins as the conventions say: as runtimeConfig for the capabilities that are on, and as
// args.
func TestConventionsOfCNIReachItsPlugins(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+strings.Join([]string{
		cniEntry("ranges", `"plugins": [
			{"type": "bridge", "bridge": "brr", "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local"}},
			{"type": "tuning", "capabilities": {"mac": true}}]`),
		cniEntry("plain", `"type": "bridge", "bridge": "brp", "ipam": {"type": "host-local", "subnet": "10.98.0.0/24"}`),
	}, ",")+"]")
	doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
	for _, tt := range []struct{ name, request, address, mac string }{
		{"runtimeConfig", "ranges:ipRanges=10.97.0.0/24,mac=0a:58:0a:61:00:02", "10.97.0.2", "0a:58:0a:61:00:02"},
		{"args", "plain:ips=10.98.0.77", "10.98.0.77", ""},
	} {
		p := m.connect(strings.ToLower(tt.name), doc, tt.request)
		if got := m.networksOf(p)[0].address(false); got != tt.address {
			t.Errorf("%s: address %s, want %s", tt.name, got, tt.address)
		}
		if got := p.Exec("s", "/bin/cat", "/sys/class/net/eth0/address").Stdout; tt.mac != "" && got != tt.mac+"\n" {
			t.Errorf("%s: address of the link %q, want %s", tt.name, got, tt.mac)
		}
	}
}
