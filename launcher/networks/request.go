package networks

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Request is a network that a pod asks for, with options.
type Request struct {
	Name     string
	IPs      []string // addresses, with or without a prefix length
	MAC      string
	DNS      DNS
	IPRanges []string          // subnets
	Labels   map[string]string // passed to the plugins as they are
}

// ParseRequest reads NAME[:KEY=VALUE[,KEY=VALUE]…]. The keys are ips, mac, dns, search, ipRanges,
// and label (K=V). All but mac may be repeated.
func ParseRequest(text string) (Request, error) {
	name, options, _ := strings.Cut(text, ":")
	r := Request{Name: name}
	if !IsName(name) {
		return r, fmt.Errorf("%q is not the name of a network", name)
	}
	if options == "" {
		return r, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		key, value, ok := strings.Cut(option, "=")
		if !ok || value == "" {
			return r, fmt.Errorf("network %q: option %q: want KEY=VALUE", name, option)
		}
		if err := r.set(key, value); err != nil {
			return r, fmt.Errorf("network %q: option %q: %w", name, option, err)
		}
	}
	return r, nil
}

func (r *Request) set(key, value string) error {
	switch key {
	case "ips":
		if _, err := netip.ParseAddr(beforeSlash(value)); err != nil {
			return fmt.Errorf("%q is not an address", value)
		}
		r.IPs = append(r.IPs, value)
	case "mac":
		return r.setMAC(value)
	case "dns":
		if _, err := netip.ParseAddr(value); err != nil {
			return fmt.Errorf("%q is not an address", value)
		}
		r.DNS.Nameservers = append(r.DNS.Nameservers, value)
	case "search":
		r.DNS.Search = append(r.DNS.Search, value)
	case "ipRanges":
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return fmt.Errorf("%q is not a subnet in CIDR notation", value)
		}
		r.IPRanges = append(r.IPRanges, prefix.Masked().String())
	case "label":
		return r.setLabel(value)
	default:
		return fmt.Errorf("unknown key; want ips, mac, dns, search, ipRanges or label")
	}
	return nil
}

func (r *Request) setMAC(value string) error {
	mac, err := net.ParseMAC(value)
	if err != nil || r.MAC != "" {
		return errors.New("want one MAC address")
	}
	r.MAC = mac.String()
	return nil
}

func (r *Request) setLabel(value string) error {
	k, v, ok := strings.Cut(value, "=")
	if !ok || k == "" {
		return fmt.Errorf("want label=KEY=VALUE")
	}
	if r.Labels == nil {
		r.Labels = make(map[string]string)
	}
	if _, twice := r.Labels[k]; twice {
		return fmt.Errorf("label %q is given twice", k)
	}
	r.Labels[k] = v
	return nil
}

func beforeSlash(text string) string {
	before, _, _ := strings.Cut(text, "/")
	return before
}
