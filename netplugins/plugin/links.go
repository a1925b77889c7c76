package plugin

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Configure brings up a link of the calling thread's network namespace, with these addresses and
// their routes. A route without GW leads to the link itself.
func Configure(name string, ips ...*IP) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	for _, ip := range ips {
		address, err := netlink.ParseAddr(ip.IP)
		if err != nil {
			return fmt.Errorf("address of link %s: %w", name, err)
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("give link %s the address %s: %w", name, ip.IP, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up link %s: %w", name, err)
	}
	for _, ip := range ips {
		for _, route := range ip.Routes {
			if err := addRoute(link, route); err != nil {
				return fmt.Errorf("add route to %s by link %s: %w", route.Dst, name, err)
			}
		}
	}
	return nil
}

// HasDefaultRoute reports whether the calling thread's network namespace has a default route of a family, such as
// netlink.FAMILY_V4, of which Linux adds no second one with the same metric.
func HasDefaultRoute(family int) (bool, error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	return len(routes) > 0, nil
}

func addRoute(link netlink.Link, route Route) error {
	_, dst, err := net.ParseCIDR(route.Dst)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: unix.RT_SCOPE_LINK}
	if route.GW != "" {
		r.Gw, r.Scope = net.ParseIP(route.GW), unix.RT_SCOPE_UNIVERSE
	}
	return netlink.RouteAdd(r)
}

// RemoveLink removes a link, and the other end of a pair with it. It is no error if the link does not
// exist.
func RemoveLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}
