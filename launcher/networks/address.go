package networks

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Addresses returns the addresses that the pod asks for on the network.
func (a Attachment) Addresses() []netip.Addr {
	type asked struct {
		IPs []string `json:"ips"`
	}
	var config struct {
		Runtime asked `json:"runtimeConfig"`
		Args    struct {
			CNI asked `json:"cni"`
		} `json:"args"`
	}
	_ = json.Unmarshal([]byte(a.Config), &config) // what is of another form asks for no address
	var all []netip.Addr
	texts := append(config.Runtime.IPs, config.Args.CNI.IPs...)
	for pair := range strings.SplitSeq(a.Args, ";") {
		if address, asks := strings.CutPrefix(pair, "IP="); asks {
			texts = append(texts, address)
		}
	}
	for _, text := range texts {
		if address, err := netip.ParseAddr(beforeSlash(text)); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// checkPorts returns an error that names a port which the attachment publishes on an address of a family that the
// network has given the pod no address of: nobody would forward the port. A network that gives no addresses at all may
// forward ports nevertheless.
func (a Attachment) checkPorts(result Result) error {
	has := result.Addresses()
	if len(has) == 0 {
		return nil
	}
	for _, port := range a.ports() {
		host, err := netip.ParseAddr(port.HostIP)
		if err != nil {
			continue // every address of the host: "", or as the plugin takes it
		}
		is4 := host.Unmap().Is4()
		if slices.ContainsFunc(has, func(own netip.Addr) bool { return own.Is4() == is4 }) {
			continue
		}
		family := map[bool]string{true: "IPv4", false: "IPv6"}[is4]
		return fmt.Errorf("port %s cannot be published: the pod has no %s address on the network", port, family)
	}
	return nil
}

// ports returns the ports that the network publishes for the pod.
func (a Attachment) ports() []PortMapping {
	var config struct {
		Runtime struct {
			Ports []PortMapping `json:"portMappings"`
		} `json:"runtimeConfig"`
	}
	_ = json.Unmarshal([]byte(a.Config), &config) // what is of another form has no ports
	return config.Runtime.Ports
}
