package networks

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Request is a network that a pod asks for, with options.
type Request struct {
	Name     string
	IPs      []string // addresses, with or without a prefix length
	MAC      string
	DNS      DNS
	IPRanges [][]IPRange       // an address is from each, of one of its ranges
	Labels   map[string]string // passed to the plugins as they are
	Args     []string          // KEY=VALUE, the variable CNI_ARGS of CNI's plugins

	Text string // that ParseRequest has read; "" for another request
}

// String returns the text of the request, or else its name.
func (r Request) String() string { return cmp.Or(r.Text, r.Name) }

// IPRange is a range of addresses, in the form of CNI's capability ipRanges.
type IPRange struct {
	Subnet  string `json:"subnet"`
	Start   string `json:"rangeStart,omitempty"`
	End     string `json:"rangeEnd,omitempty"`
	Gateway string `json:"gateway,omitempty"`
}

// ParseRequest reads NAME[:KEY=VALUE[,KEY=VALUE]…]. The keys are ips, mac, dns, search, dnsOption, ipRanges, label
// (K=V) and args (K=V). All but mac may be repeated.
func ParseRequest(text string) (Request, error) {
	name, options, _ := strings.Cut(text, ":")
	r := Request{Name: name, Text: text}
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
	case "dnsOption":
		r.DNS.Options = append(r.DNS.Options, value)
	case "ipRanges":
		ranges, err := parseRanges(value)
		if err != nil {
			return err
		}
		r.IPRanges = append(r.IPRanges, ranges)
	case "label":
		return r.setLabel(value)
	case "args":
		return r.setArg(value)
	default:
		return fmt.Errorf("unknown key; want ips, mac, dns, search, dnsOption, ipRanges, label or args")
	}
	return nil
}

// parseRanges reads RANGE[+RANGE]…. A range is SUBNET[;KEY=ADDRESS]… with the keys rangeStart, rangeEnd and gateway.
func parseRanges(text string) (all []IPRange, err error) {
	for one := range strings.SplitSeq(text, "+") {
		parts := strings.Split(one, ";")
		prefix, err := netip.ParsePrefix(parts[0])
		if err != nil {
			return nil, fmt.Errorf("%q is not a subnet in CIDR notation", parts[0])
		}
		r := IPRange{Subnet: prefix.Masked().String()}
		for _, pair := range parts[1:] {
			key, value, _ := strings.Cut(pair, "=")
			into := map[string]*string{"rangeStart": &r.Start, "rangeEnd": &r.End, "gateway": &r.Gateway}[key]
			if into == nil || *into != "" {
				return nil, fmt.Errorf("%q: want rangeStart, rangeEnd or gateway, each once", pair)
			}
			address, err := netip.ParseAddr(value)
			if err != nil || !prefix.Contains(address) {
				return nil, fmt.Errorf("%s: %q is not an address of %s", key, value, r.Subnet)
			}
			*into = address.String()
		}
		all = append(all, r)
	}
	return all, nil
}

// setArg adds a pair of CNI_ARGS, which pairs with semicolons between them make.
func (r *Request) setArg(value string) error {
	key, text, ok := strings.Cut(value, "=")
	if !ok || !argPattern.MatchString(key) || strings.ContainsAny(text, ";= \t\n") {
		return errors.New("want args=KEY=VALUE, a key of letters, digits and '_', and a value without ';', '=' and " +
			"white space")
	}
	if slices.ContainsFunc(r.Args, func(pair string) bool { return strings.HasPrefix(pair, key+"=") }) {
		return fmt.Errorf("args %q is given twice", key)
	}
	r.Args = append(r.Args, value)
	return nil
}

var argPattern = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

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
