package plugin

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
)

func TestAddressesAreGivenOnceAndReleased(t *testing.T) {
	a := Addresses{Dir: t.TempDir() + "/run"}
	if err := a.Release("nobody"); err != nil {
		t.Errorf("release before anything was reserved: %v", err)
	}
	subnet := netip.MustParsePrefix("10.0.0.7/29") // 10.0.0.2 to 10.0.0.6
	var all sync.WaitGroup
	given := make([]netip.Addr, 5)
	for i := range given {
		all.Go(func() {
			ip, gateway, err := a.Reserve(subnet, string(rune('a'+i)))
			if err != nil || gateway.String() != "10.0.0.1" {
				t.Errorf("gateway %s, %v", gateway, err)
			}
			given[i] = ip
		})
	}
	all.Wait()
	seen := make(map[string]bool)
	for _, ip := range given {
		seen[ip.String()] = true
	}
	for _, want := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"} {
		if !seen[want] {
			t.Errorf("%s is given to nobody: %v", want, given)
		}
	}
	if _, _, err := a.Reserve(subnet, "z"); err == nil || !strings.Contains(err.Error(), "no address of 10.0.0.7/29 is free") {
		t.Errorf("from a full subnet: %v", err)
	}
	if err := a.Release("c"); err != nil {
		t.Fatal(err)
	}
	if ip, _, err := a.Reserve(subnet, "z"); err != nil || ip != given[2] {
		t.Errorf("after a release %s, %v, want %s", ip, err, given[2])
	}
	six, gateway, err := a.Reserve(netip.MustParsePrefix("fd00::/64"), "z")
	if err != nil || six.String() != "fd00::2" || gateway.String() != "fd00::1" {
		t.Errorf("IPv6: %s, %s, %v", six, gateway, err)
	}
}
