package networks

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// MaxPort is the largest number of a port.
const MaxPort = 1<<16 - 1

// PortMapping is a port of the host that leads to the pod, in the form of CNI's capability
// portMappings.
type PortMapping struct {
	HostPort      uint   `json:"hostPort"` // 0 for one that is not chosen yet
	ContainerPort uint   `json:"containerPort"`
	Protocol      string `json:"protocol"` // in lower case, for which IsProtocol holds
	HostIP        string `json:"hostIP,omitempty"`
}

// IsProtocol reports whether ports of the protocol can be published: CNI's portmap and libnetwork know it.
func IsProtocol(name string) bool { return slices.Contains([]string{"tcp", "udp", "sctp"}, name) }

// ParsePorts reads [IP:]HOST:PORT[/PROTOCOL]: ports of the host, and the pod's ports that they lead to. HOST and PORT
// are numbers, or ranges FIRST-LAST of the same length. An IPv6 address is in brackets. The protocol is tcp unless the
// text names one. Without HOST, as PORT or IP::PORT, the host's ports are 0: somebody else chooses them.
func ParsePorts(text string) ([]PortMapping, error) {
	p := PortMapping{Protocol: "tcp"}
	ports, protocol, named := strings.Cut(text, "/")
	if named {
		p.Protocol = strings.ToLower(protocol)
	}
	if !IsProtocol(p.Protocol) {
		return nil, fmt.Errorf("protocol %q: want tcp, udp or sctp", protocol)
	}
	host, port, mapped := cutLast(ports)
	if ip, number, ok := cutLast(host); ok {
		address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(ip, "["), "]"))
		if err != nil || address.Is6() != strings.HasPrefix(ip, "[") {
			return nil, fmt.Errorf("%q is not an address of the host; want 127.0.0.1, or an IPv6 address in brackets", ip)
		}
		host, p.HostIP, mapped = number, address.String(), number != ""
	}
	return p.expand(host, port, mapped)
}

// expand returns a mapping for each port of the ranges. Without mapped there is no range of the host.
func (p PortMapping) expand(host, port string, mapped bool) (all []PortMapping, err error) {
	var last, lastHost uint
	if p.ContainerPort, last, err = parseRange(port); err != nil {
		return nil, err
	}
	if mapped {
		if p.HostPort, lastHost, err = parseRange(host); err != nil {
			return nil, err
		}
		if lastHost-p.HostPort != last-p.ContainerPort {
			return nil, fmt.Errorf("%s:%s: the ranges differ in length", host, port)
		}
	}
	for n := range last - p.ContainerPort + 1 {
		one := p.plus(n)
		if !mapped {
			one.HostPort = 0
		}
		all = append(all, one)
	}
	return all, nil
}

// parseRange reads FIRST-LAST or a single number.
func parseRange(text string) (first, last uint, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		first, err = parseNumber(text)
		return first, first, err
	}
	first, err = parseNumber(from)
	if err == nil {
		last, err = parseNumber(to)
	}
	if err != nil || last < first {
		return 0, 0, fmt.Errorf("ports %q: want FIRST-LAST, numbers from 1 to %d", text, MaxPort)
	}
	return first, last, nil
}

// cutLast cuts at the last colon; without one, all is after it.
func cutLast(text string) (before, after string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], true
}

func parseNumber(text string) (uint, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return 0, fmt.Errorf("port %q: want a number from 1 to %d", text, MaxPort)
	}
	return uint(number), nil
}

// String returns the mapping as people read it: "8080->80/tcp", "127.0.0.1:53->53/udp", and "80/tcp" without the host's
// port.
func (p PortMapping) String() string { return p.upTo(p) }

// upTo returns the range of mappings that ends with last.
func (p PortMapping) upTo(last PortMapping) string {
	if p.HostPort == 0 {
		return fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
	}
	host, port := fmt.Sprint(p.HostPort), fmt.Sprint(p.ContainerPort)
	if last != p {
		host, port = fmt.Sprintf("%d-%d", p.HostPort, last.HostPort), fmt.Sprintf("%d-%d", p.ContainerPort,
			last.ContainerPort)
	}
	switch {
	case strings.Contains(p.HostIP, ":"):
		host = "[" + p.HostIP + "]:" + host
	case p.HostIP != "":
		host = p.HostIP + ":" + host
	}
	return host + "->" + port + "/" + p.Protocol
}

// DescribePorts returns the mappings in one line, in their order. Consecutive ports become a range.
func DescribePorts(all []PortMapping) string {
	var ranges []string
	for len(all) > 0 {
		first, end := all[0], 1
		for end < len(all) && all[end] == first.plus(uint(end)) {
			end++
		}
		ranges = append(ranges, first.upTo(all[end-1]))
		all = all[end:]
	}
	return strings.Join(ranges, ", ")
}

// plus returns the mapping of the ports n above.
func (p PortMapping) plus(n uint) PortMapping {
	p.HostPort += n
	p.ContainerPort += n
	return p
}
