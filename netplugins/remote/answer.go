package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"kurma.io/stager/netplugins/plugin"
)

// link is what becomes of a driver's link in the pod. It is plain data, made of the driver's answers.
type link struct {
	Source    string // the link's name on the host
	Prefix    string // of its name in the pod, if the network names no interface
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Connected []netip.Prefix // subnets on the link
	Routes    []route        // through another host
	Gateways  []netip.Addr   // at most one of each family, for a pod that has none
}

type route struct {
	To  netip.Prefix
	Via netip.Addr
}

// settle merges the addresses given to the driver with the driver's answer. The answer must not repeat a given
// address.
func settle(given address, answer *address) (address, error) {
	if answer == nil {
		answer = &address{}
	}
	for _, f := range []struct{ name, given, answered string }{
		{"Address", given.Address, answer.Address},
		{"AddressIPv6", given.AddressIPv6, answer.AddressIPv6},
		{"MacAddress", given.MacAddress, answer.MacAddress},
	} {
		if f.given != "" && f.answered != "" {
			return given, fmt.Errorf("the driver was given %s %s, and must not answer %s", f.name, f.given, f.answered)
		}
	}
	all := address{
		cmp.Or(given.Address, answer.Address),
		cmp.Or(given.AddressIPv6, answer.AddressIPv6),
		cmp.Or(given.MacAddress, answer.MacAddress),
	}
	if all.Address == "" && all.AddressIPv6 == "" {
		return all, errors.New("the endpoint has no address: the network has no ipam, and the driver has answered none")
	}
	_, err := all.link()
	return all, err
}

// link reads the addresses.
func (a address) link() (link, error) {
	var l link
	for _, f := range []struct {
		name, value string
		family      int
	}{{"Address", a.Address, 0}, {"AddressIPv6", a.AddressIPv6, 1}} {
		if f.value == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(f.value)
		if err != nil || family(prefix.Addr()) != f.family {
			return l, fmt.Errorf("%s %q: want an address of the family in CIDR notation", f.name, f.value)
		}
		l.Addresses = append(l.Addresses, prefix)
	}
	if a.MacAddress != "" {
		mac, err := net.ParseMAC(a.MacAddress)
		if err != nil {
			return l, fmt.Errorf("MacAddress %q: %w", a.MacAddress, err)
		}
		l.MAC = mac
	}
	return l, nil
}

// link makes a link of an endpoint's addresses and the answer to Join.
func (j joined) link(a address) (link, error) {
	l, err := a.link()
	if err != nil {
		return l, err
	}
	l.Source, l.Prefix = j.InterfaceName.SrcName, j.InterfaceName.DstPrefix
	isName := regexp.MustCompile(`^[^/:\s]{1,15}$`).MatchString
	if !isName(l.Source) {
		return l, fmt.Errorf("SrcName %q is not the name of a link", l.Source)
	}
	if l.Prefix != "" && !isName(l.Prefix) {
		return l, fmt.Errorf("DstPrefix %q is not the name of a link", l.Prefix)
	}
	for i, r := range j.StaticRoutes {
		if err := l.addRoute(r); err != nil {
			return l, fmt.Errorf("StaticRoutes[%d]: %w", i, err)
		}
	}
	for i, text := range []string{j.Gateway, j.GatewayIPv6} {
		if text == "" {
			continue
		}
		ip, err := netip.ParseAddr(text)
		if err != nil || family(ip) != i {
			return l, fmt.Errorf("%s %q: want an address of the family", []string{"Gateway", "GatewayIPv6"}[i], text)
		}
		l.Gateways = append(l.Gateways, ip)
	}
	return l, nil
}

func (l *link) addRoute(r staticRoute) error {
	to, err := netip.ParsePrefix(r.Destination)
	if err != nil {
		return fmt.Errorf("destination %q: want CIDR notation", r.Destination)
	}
	switch {
	case r.RouteType == routeConnected && r.NextHop == "":
		l.Connected = append(l.Connected, to.Masked())
		return nil
	case r.RouteType != routeNextHop:
		return fmt.Errorf("RouteType %d with NextHop %q: want 0 with, or 1 without one", r.RouteType, r.NextHop)
	}
	via, err := netip.ParseAddr(r.NextHop)
	if err != nil || family(via) != family(to.Addr()) {
		return fmt.Errorf("NextHop %q: want an address of the family of %s", r.NextHop, to)
	}
	l.Routes = append(l.Routes, route{to.Masked(), via})
	return nil
}

// result is what the daemon gets about a link.
func (l link) result() *plugin.Result {
	result := &plugin.Result{}
	for _, address := range l.Addresses {
		ip := &plugin.IP{IP: address.String()}
		into, same := &result.IP4, family(address.Addr())
		if same == 1 {
			into = &result.IP6
		}
		*into = ip
		for _, gateway := range l.Gateways {
			if family(gateway) == same {
				ip.Gateway = gateway.String()
			}
		}
		for _, to := range l.Connected {
			if family(to.Addr()) == same {
				ip.Routes = append(ip.Routes, plugin.Route{Dst: to.String()})
			}
		}
		for _, r := range l.Routes {
			if family(r.Via) == same {
				ip.Routes = append(ip.Routes, plugin.Route{Dst: r.To.String(), GW: r.Via.String()})
			}
		}
	}
	return result
}
