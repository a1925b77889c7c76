package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// A repeated DEL finds addresses that another pod has got since.
func TestAddressesOfOthersAreLeft(t *testing.T) {
	c := &cni{cache: t.TempDir()}
	n := &network{list: &libcni.NetworkConfigList{Name: "net"}}
	own := &libcni.RuntimeConf{ContainerID: "own", IfName: "eth0"}
	for id, address := range map[string]string{"own": "10.1.0.2", "other": "10.1.0.3"} {
		rt := &libcni.RuntimeConf{ContainerID: id, IfName: "eth0"}
		r := newRecord(n, rt)
		r.Result = json.RawMessage(fmt.Sprintf(`{"cniVersion": "1.0.0", "ips": [{"address": "%s/24"}]}`, address))
		if err := c.write(n, rt, r); err != nil {
			t.Fatal(err)
		}
	}
	mine, taken := netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
	if got, err := c.notOthers(own, []netip.Addr{mine, taken}); err != nil || !slices.Equal(got, []netip.Addr{mine}) {
		t.Errorf("%v, %v", got, err)
	}
}
