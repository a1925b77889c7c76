package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/netplugins/plugin"
)

// makeLinks makes the pair of devices: the pod's end with its address and a default route, the
// machine's end with the gateway's address and a route to the pod.
func makeLinks(pod plugin.Pod, ip, gateway netip.Addr) error {
	namespace, err := os.Open(pod.Namespace)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer namespace.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = hostLink(pod)
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: pod.Interface, PeerNamespace: netlink.NsFd(namespace.Fd())}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make links: %w", err)
	}
	err = pod.In(func() error {
		link, err := prepare(pod.Interface, ip)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link, Dst: host(gateway), Scope: unix.RT_SCOPE_LINK}); err != nil {
			return fmt.Errorf("add route to the gateway: %w", err)
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link, Gw: gateway.AsSlice()})
	})
	if err != nil {
		return err
	}
	link, err := prepare(attrs.Name, gateway)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link, Dst: host(ip), Scope: unix.RT_SCOPE_LINK})
}

// prepare gives a link its address, brings it up, and returns its index.
func prepare(name string, ip netip.Addr) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: host(ip)}); err != nil {
		return 0, fmt.Errorf("set address of %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return 0, fmt.Errorf("bring up %s: %w", name, err)
	}
	return link.Attrs().Index, nil
}

// host is the subnet of one address.
func host(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}
}
