package tests

import (
	"fmt"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// Each version of CNI, as a single configuration and as a list, connects a pod; a pod is connected to all of
// them at once, and CHECK, where the version has it, is content.
func TestEveryVersionOfCNIConnectsPods(t *testing.T) {
	t.Parallel()
	var entries, networks []string
	for i, version := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		const kurma = `"aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}"`
		plugin := func(n int) string {
			return fmt.Sprintf(`"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.%d.%d.0/24"}`, 100+n, i)
		}
		single, list := "single-"+version, "list-"+version
		entries = append(entries,
			fmt.Sprintf(`{"name": %q, %s, "cniVersion": %q, %s}`, single, kurma, version, plugin(0)),
			fmt.Sprintf(`{"name": %q, %s, "cniVersion": %q, "plugins": [{%s}, {"type": "tuning", "mtu": 1400}]}`, list, kurma, version, plugin(1)))
		networks = append(networks, single, list)
	}
	m := newNetMachine(t, "["+strings.Join(entries, ",")+"]")
	p := m.connect("p", harness.PodOf(server("s", "for")), networks...)
	for i, info := range m.networksOf(p) {
		want := fmt.Sprintf("10.%d.%d.2", 100+i%2, i/2)
		if info.Name != networks[i] || info.Interface != fmt.Sprint("eth", i) || info.address(false) != want || info.IP4.Gateway == "" {
			t.Errorf("network %d: %+v, want %s with the address %s", i, info, networks[i], want)
			continue
		}
		answers(t, "for "+info.IP4.Gateway, func() string { return m.host.fetch(want, 8080) })
	}
	if r := m.Launcher("network", "validate"); r.Code != 0 || strings.Count(r.Stdout, ": good\n") != len(networks) {
		t.Errorf("network validate: %+v", r)
	}

	// What CHECK finds out, since 0.4.0.
	for _, link := range []string{"eth13", "eth6"} { // of list-1.1.0 and single-0.3.1
		if r := harness.Finish(t, p.InNetwork("ip", "addr", "flush", "dev", link)); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	r := m.Launcher("network", "validate")
	if r.Code != 1 || strings.Count(r.Stdout, ": good\n") != len(networks)-1 || !strings.Contains(r.Stdout, "list-1.1.0: ") || !strings.Contains(r.Stdout, p.UUID) {
		t.Errorf("network validate of a pod that has lost an address: %+v", r)
	}
}
