package plugin

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Flush has the kernel forget the flows from and to a pod's addresses in the calling thread's network namespace
// (conntrack). A flow of UDP would outlive the pod as long as its other end sends, and lead past the rules of the pods
// that have the address or the published port later. A kernel that cannot list flows keeps them until they time out,
// which is no error.
func Flush(addresses []netip.Addr) error {
	for family, filters := range flowFilters(addresses) {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filters...)
		// The errors of a kernel without nf_conntrack_netlink, and without netfilter (nfnetlink.c, af_netlink.c).
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPROTONOSUPPORT) {
			return fmt.Errorf("delete flows of %v: %w", addresses, err)
		}
	}
	return nil
}

// flowFilters returns filters of the flows of which an address is one end, before or after the translation of
// addresses.
func flowFilters(addresses []netip.Addr) map[netlink.InetFamily][]netlink.CustomConntrackFilter {
	all := make(map[netlink.InetFamily][]netlink.CustomConntrackFilter)
	for _, address := range addresses {
		family := netlink.InetFamily(unix.AF_INET6)
		if address.Is4() {
			family = unix.AF_INET
		}
		all[family] = append(all[family], endOfFlow(address))
	}
	return all
}

// endOfFlow is a filter of the flows that have the address as an end.
type endOfFlow netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (e endOfFlow) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, way := range []netlink.IPTuple{flow.Forward, flow.Reverse} {
		for _, ip := range [][]byte{way.SrcIP, way.DstIP} {
			if address, ok := netip.AddrFromSlice(ip); ok && address.Unmap() == netip.Addr(e) {
				return true
			}
		}
	}
	return false
}
