package networks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Result is what a plugin's `add` has made, in the form of the Kurma Network Specification.
type Result struct {
	IP4 *IPConfig `json:"ip4,omitempty"`
	IP6 *IPConfig `json:"ip6,omitempty"`
	DNS *DNS      `json:"dns,omitempty"`
}

// Addresses returns the pod's addresses, that of IPv6 first.
func (r Result) Addresses() []netip.Addr {
	var all []netip.Addr
	for _, ip := range []*IPConfig{r.IP6, r.IP4} {
		if ip == nil {
			continue
		}
		if prefix, err := netip.ParsePrefix(ip.IP); err == nil {
			all = append(all, prefix.Addr())
		}
	}
	return all
}

// IPConfig is an address of the pod's interface.
type IPConfig struct {
	IP      string  `json:"ip"` // in CIDR notation
	Gateway string  `json:"gateway,omitempty"`
	Routes  []Route `json:"routes,omitempty"`
}

// Route is a route of the pod.
type Route struct {
	Dst string `json:"dst"` // in CIDR notation
	GW  string `json:"gw,omitempty"`
}

// anyResult has the fields of the old form, ip4 and ip6, and of the newer one, ips, which CNI
// has had since 0.3.0.
type anyResult struct {
	Result
	IPs []struct {
		Address string `json:"address"`
		Gateway string `json:"gateway"`
	} `json:"ips"`
	Routes []Route `json:"routes"`
}

// parseResult reads the output of an `add`. Empty output means no addresses. The newer form is
// converted: the first address of each family is kept, with the routes of its family. Output of
// another form is an error.
func parseResult(output []byte) (Result, error) {
	text := strings.TrimSpace(string(output))
	if text == "" {
		return Result{}, nil
	}
	if !strings.HasPrefix(text, "{") {
		return Result{}, fmt.Errorf("not a result: %s", shorten(text))
	}
	var in anyResult
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Result{}, fmt.Errorf("not a result: %s: %w", shorten(text), err)
	}
	r, err := in.convert()
	if err != nil {
		return Result{}, err
	}
	if r.DNS.isEmpty() {
		r.DNS = nil
	}
	return r, errors.Join(checkIP(r.IP4, true), checkIP(r.IP6, false))
}

// convert returns a result of either form in the older one.
func (in anyResult) convert() (Result, error) {
	r := in.Result
	for _, ip := range in.IPs {
		prefix, err := netip.ParsePrefix(ip.Address)
		if err != nil {
			return Result{}, fmt.Errorf("address %q is not in CIDR notation", ip.Address)
		}
		into, is4 := &r.IP6, prefix.Addr().Is4()
		if is4 {
			into = &r.IP4
		}
		if *into == nil {
			*into = &IPConfig{IP: ip.Address, Gateway: ip.Gateway, Routes: routesOf(in.Routes, is4)}
		}
	}
	return r, nil
}

func routesOf(all []Route, v4 bool) []Route {
	var some []Route
	for _, r := range all {
		if prefix, err := netip.ParsePrefix(r.Dst); err == nil && prefix.Addr().Is4() == v4 {
			some = append(some, r)
		}
	}
	return some
}

func checkIP(c *IPConfig, v4 bool) error {
	if c == nil {
		return nil
	}
	prefix, err := netip.ParsePrefix(c.IP)
	if err != nil {
		return fmt.Errorf("address %q is not in CIDR notation", c.IP)
	}
	if prefix.Addr().Is4() != v4 {
		return fmt.Errorf("address %q is of the other family", c.IP)
	}
	return nil
}

// shorten returns the beginning of a plugin's words in one line.
func shorten(text string) string {
	const enough = 400
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > enough {
		return text[:enough] + "…"
	}
	return text
}
