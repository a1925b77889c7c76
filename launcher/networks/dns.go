package networks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// DNS is what a network says about name servers.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// isEmpty reports whether the plugin has said nothing: {"dns": {}} counts as nothing.
func (d *DNS) isEmpty() bool {
	return d == nil || len(d.Nameservers) == 0 && !d.saysHow()
}

// saysHow reports whether there is something beside the name servers: how they are asked.
func (d *DNS) saysHow() bool {
	return d.Domain != "" || len(d.Search) > 0 || len(d.Options) > 0
}

// fill takes from another what is missing: the name servers, and all that is said beside them.
func (d *DNS) fill(other *DNS) {
	if other == nil {
		return
	}
	if len(d.Nameservers) == 0 {
		d.Nameservers = other.Nameservers
	}
	if !d.saysHow() {
		d.Domain, d.Search, d.Options = other.Domain, other.Search, other.Options
	}
}

// Names decides a pod's resolv.conf: the pod's own options; unless these have name servers, each missing setting
// comes from the first network with the setting; still missing name servers come from host, the host's
// resolv.conf. nil means all of the host's.
func Names(attachments []Attachment, results []Result, host string) *DNS {
	var names DNS
	for _, a := range attachments {
		names.fill(a.DNS)
	}
	if len(names.Nameservers) == 0 {
		for _, r := range results {
			names.fill(r.DNS)
		}
	}
	if names.isEmpty() {
		return nil
	}
	if len(names.Nameservers) == 0 {
		names.Nameservers = serversOf(host)
	}
	return &names
}

// OnlyLoopback reports whether a resolv.conf has no name server but at loopback addresses.
func OnlyLoopback(text string) bool {
	return !slices.ContainsFunc(serversOf(text), func(server string) bool {
		address, err := netip.ParseAddr(server)
		return err != nil || !address.IsLoopback()
	})
}

// serversOf returns the name servers of a resolv.conf.
func serversOf(text string) []string {
	var servers []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, words[1])
		}
	}
	return servers
}

// ResolvConf returns the text of a resolv.conf(5), "" if there is none to write.
func (d *DNS) ResolvConf() string {
	if d.isEmpty() {
		return ""
	}
	var out strings.Builder
	for _, server := range d.Nameservers {
		fmt.Fprintf(&out, "nameserver %s\n", server)
	}
	if d.Domain != "" {
		fmt.Fprintf(&out, "domain %s\n", d.Domain)
	}
	if len(d.Search) > 0 {
		fmt.Fprintf(&out, "search %s\n", strings.Join(d.Search, " "))
	}
	if len(d.Options) > 0 {
		fmt.Fprintf(&out, "options %s\n", strings.Join(d.Options, " "))
	}
	return out.String()
}
