package networks

import (
	"encoding/json"
	"net/netip"
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
	for _, text := range append(config.Runtime.IPs, config.Args.CNI.IPs...) {
		if address, err := netip.ParseAddr(beforeSlash(text)); err == nil {
			all = append(all, address)
		}
	}
	return all
}
