package pods

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/networks"

	"github.com/google/go-cmp/cmp"
)

// connectedTo is a connection to a network with an address of IPv4, and one of IPv6 if it is not "".
func connectedTo(network, ip4, ip6 string) Connection {
	c := Connection{Name: network}
	if ip4 != "" {
		c.IP4 = &networks.IPConfig{IP: ip4 + "/24"}
	}
	if ip6 != "" {
		c.IP6 = &networks.IPConfig{IP: ip6 + "/64"}
	}
	return c
}

func TestHostsFilesNameThePodsOfSharedNetworks(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	pod := func(name, hostname string, own ...Connection) (*Pod, []Connection) {
		return &Pod{Plan: Plan{Name: name, Hostname: hostname}}, own
	}
	for _, c := range []struct {
		name   string
		pod    func() (*Pod, []Connection)
		others map[string][]Connection
		order  []string
		want   string
	}{
		{"a pod alone", func() (*Pod, []Connection) { return pod("web", "web", connectedTo("a", "10.0.0.2", "fd00::2")) }, nil, nil, "fd00::2\tweb\n10.0.0.2\tweb\n"},
		{"a name that is no hostname", func() (*Pod, []Connection) { return pod("my_web", "my-web", connectedTo("a", "10.0.0.2", "")) }, nil, nil, "10.0.0.2\tmy-web my_web\n"},
		{"no address", func() (*Pod, []Connection) { return pod("web", "web", connectedTo("lo", "127.0.0.1", "::1")) }, nil, nil, "127.0.0.1\tweb\n"},
		{"no hostname", func() (*Pod, []Connection) { return pod("web", "", connectedTo("a", "10.0.0.2", "")) }, nil, nil, "10.0.0.2\tweb\n"},
		{
			"added hosts", func() (*Pod, []Connection) {
				p, own := pod("web", "web", connectedTo("a", "10.0.0.2", ""))
				for _, text := range []string{"db 192.0.2.1", "api 192.0.2.2", "DB 2001:db8::1", "localhost 192.0.2.3"} {
					name, address, _ := strings.Cut(text, " ")
					p.Plan.AddedHosts = append(p.Plan.AddedHosts, Host{name, netip.MustParseAddr(address)})
				}
				return p, own
			},
			map[string][]Connection{"db": {connectedTo("a", "10.0.0.3", "")}, "other": {connectedTo("a", "10.0.0.4", "")}},
			[]string{"db", "other"},
			"192.0.2.1\tdb\n2001:db8::1\tdb\n192.0.2.2\tapi\n10.0.0.2\tweb\n10.0.0.4\tother\n",
		},
		{
			"shared networks", func() (*Pod, []Connection) {
				return pod("web", "web", connectedTo("a", "10.0.0.2", ""), connectedTo("b", "10.1.0.2", ""))
			},
			map[string][]Connection{
				"both":  {connectedTo("b", "10.1.0.3", ""), connectedTo("a", "10.0.0.3", "")},
				"other": {connectedTo("c", "10.2.0.4", "")},
				"half":  {connectedTo("c", "10.2.0.5", ""), connectedTo("a", "10.0.0.5", "")},
				"lo":    {connectedTo("a", "127.0.0.1", "::1")},
			},
			[]string{"both", "other", "half", "lo"},
			"10.0.0.2\tweb\n10.1.0.2\tweb\n10.1.0.3\tboth\n10.0.0.3\tboth\n10.0.0.5\thalf\n",
		},
		{
			"names that are taken", func() (*Pod, []Connection) { return pod("web", "DB", connectedTo("a", "10.0.0.2", "")) },
			map[string][]Connection{
				"localhost": {connectedTo("a", "10.0.0.3", "")}, "db": {connectedTo("a", "10.0.0.4", "")},
				"Cache": {connectedTo("a", "10.0.0.5", "")}, "cache": {connectedTo("a", "10.0.0.6", "")},
			},
			[]string{"localhost", "db", "Cache", "cache"},
			"10.0.0.2\tDB web\n10.0.0.5\tCache\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, own := c.pod()
			lines := hostsLines(p, own)
			for _, name := range c.order {
				lines.add(sharedAddresses(c.others[name], own), name)
			}
			if diff := cmp.Diff(local+c.want, string(lines.text())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// manyHosts is a hosts file of so many pods, whose names begin so.
func manyHosts(pods int, name string) *hosts {
	h := &hosts{}
	for i := range pods {
		h.lines = append(h.lines, fmt.Sprintf("10.0.%d.%d\t%s-%d\n", i/256, i%256, name, i))
	}
	return h
}

// A write that is cut off at the end of a page leaves lines of the old file and of the new one, and no others.
func TestAHostsFileThatIsCutOffHasWholeLines(t *testing.T) {
	old, next := manyHosts(500, "old"), manyHosts(400, "a-longer-name")
	known := make(map[string]bool)
	for _, line := range append(old.lines, next.lines...) {
		known[line] = true
	}
	before, after := old.text(), next.text()
	if len(before) < 2*pageSize || len(after) < 2*pageSize {
		t.Fatalf("files of %d and %d bytes are too short for this test", len(before), len(after))
	}
	for cut := 0; cut < len(after); cut += pageSize {
		mixed := bytes.Clone(after[:cut])
		if cut < len(before) {
			mixed = append(mixed, before[cut:]...)
		}
		for line := range strings.Lines(string(mixed)) {
			if line != "\n" && !known[line] {
				t.Errorf("cut off at %d: line %q", cut, line)
			}
		}
	}
}

func TestAHostsFileIsWrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounted, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	for _, text := range [][]byte{manyHosts(3, "a").text(), manyHosts(500, "b").text(), manyHosts(2, "c").text(), manyHosts(2, "c").text()} {
		if err := rewrite(path, text); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("the file that was open has %d bytes, want %d: %v", len(got), len(text), err)
		}
	}
}

func TestAPodIsNamedThoughAnothersHostsFileCannotBeWritten(t *testing.T) {
	s := newStore(t)
	other, pod := s.newPod(t, "other", ""), s.newPod(t, "pod", "")
	if err := os.Mkdir(other.hosts(), 0o700); err != nil {
		t.Fatal(err)
	}
	pod.Plan.Networks = []networks.Attachment{{}}
	if err := errors.Join(pod.makeHosts(), pod.joinHosts()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(pod.hosts()); !strings.Contains(string(text), "pod") {
		t.Errorf("%v: %q", err, text)
	}
	if log, err := os.ReadFile(pod.LogPath()); !strings.Contains(string(log), `hosts file of pod \"other\"`) {
		t.Errorf("%v: %q", err, log)
	}
	for _, k := range []*Keeper{pod, other} {
		if err := k.Discard(); err != nil {
			t.Error(err)
		}
	}
}
