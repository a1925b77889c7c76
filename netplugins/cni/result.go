package main

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"kurma.io/stager/netplugins/plugin"
)

// body is an ADD's result of any version, by its shape: ip4 and ip6 until 0.2.0, ips since
// 0.3.0. Libcni reads it by the configuration's version, and loses the addresses of a plugin that
// prints the old form under a new version.
type body struct {
	IP4    *plugin.IP     `json:"ip4"`
	IP6    *plugin.IP     `json:"ip6"`
	IPs    []ipOf         `json:"ips"`
	Routes []plugin.Route `json:"routes"`
	DNS    *plugin.DNS    `json:"dns"`
}

// ipOf is an address of the newer form.
type ipOf struct {
	Address string `json:"address"`
	Gateway string `json:"gateway"`
}

// convert makes a Kurma network's result of a CNI plugin's.
func convert(output []byte) (*plugin.Result, error) {
	var b body
	if len(output) > 0 {
		if err := json.Unmarshal(output, &b); err != nil {
			return nil, fmt.Errorf("read result: %w", err)
		}
	}
	r := &plugin.Result{IP4: b.IP4, IP6: b.IP6}
	for _, ip := range b.IPs {
		prefix, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return nil, fmt.Errorf("read result: address %q: %w", ip.Address, err)
		}
		into := &r.IP6
		if prefix.Addr().Is4() {
			into = &r.IP4
		}
		if *into == nil {
			*into = &plugin.IP{IP: ip.Address, Gateway: ip.Gateway, Routes: routes(b.Routes, prefix.Addr().Is4())}
		}
	}
	if d := b.DNS; d != nil && (len(d.Nameservers) > 0 || d.Domain != "" || len(d.Search) > 0 || len(d.Options) > 0) {
		r.DNS = d
	}
	return r, nil
}

func routes(all []plugin.Route, v4 bool) []plugin.Route {
	var some []plugin.Route
	for _, route := range all {
		if prefix, err := netip.ParsePrefix(route.Dst); err == nil && prefix.Addr().Is4() == v4 {
			some = append(some, route)
		}
	}
	return some
}

// podAddresses returns all addresses of an ADD's result; none of one that convert would refuse.
func podAddresses(output []byte) (all []netip.Addr) {
	var b body
	if len(output) == 0 || json.Unmarshal(output, &b) != nil {
		return nil
	}
	for _, ip := range []*plugin.IP{b.IP4, b.IP6} {
		if ip != nil {
			b.IPs = append(b.IPs, ipOf{Address: ip.IP})
		}
	}
	for _, ip := range b.IPs {
		if prefix, err := netip.ParsePrefix(ip.Address); err == nil {
			all = append(all, prefix.Addr())
		}
	}
	return all
}
