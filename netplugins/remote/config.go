package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// settings is a network's configuration. The keys that are not the plugin's own are Kurma's, and what
// the daemon adds for a pod.
type settings struct {
	Name         string          `json:"name"`
	ACI          string          `json:"aci"`
	Interface    string          `json:"containerInterface"`
	Default      bool            `json:"default"`
	Capabilities map[string]bool `json:"capabilities"`

	Driver  string         `json:"driver"`
	IPAM    []pool         `json:"ipam"`
	Options map[string]any `json:"options"` // the driver's own, for CreateNetwork
	Node    string         `json:"node"`    // this machine's address, for a driver of global scope
	Nodes   []string       `json:"nodes"`   // addresses of the other machines

	Runtime runtimeConfig   `json:"runtimeConfig"`
	Args    json.RawMessage `json:"args"` // see wishes
}

// pool is a subnet of the network. Gateway and AuxAddresses are sent to the driver as they are written:
// an address, or an address in CIDR notation, which most drivers want.
type pool struct {
	Subnet       netip.Prefix      `json:"subnet"`
	Range        netip.Prefix      `json:"range"` // the part of it that pods get addresses from; all of it by default
	Gateway      string            `json:"gateway"`
	AuxAddresses map[string]string `json:"auxAddresses"`
	AddressSpace string            `json:"addressSpace"`
}

// runtimeConfig is what the daemon passes for the capabilities.
type runtimeConfig struct {
	PortMappings []portMapping `json:"portMappings"`
	IPs          []string      `json:"ips"`
	MAC          string        `json:"mac"`
}

// portMapping is a port of the host that leads to the pod.
type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// wishes is what a pod asks for.
type wishes struct {
	ips    []string
	mac    string
	labels map[string]string
}

// parse reads and checks a network's configuration.
func parse(config []byte) (*settings, error) {
	s := &settings{}
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(s); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// check returns an error that names the key with an invalid value.
func (s *settings) check() error {
	switch {
	case s.Name == "":
		return errors.New("name: missing")
	case s.Driver == "":
		return errors.New("driver: missing: want the name of a network driver")
	case !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`).MatchString(s.Driver):
		return fmt.Errorf("driver: %q is not the name of a network driver", s.Driver)
	}
	for name, on := range s.Capabilities {
		if on && !slices.Contains([]string{"portMappings", "ips", "mac"}, name) {
			return fmt.Errorf("capabilities: unknown capability %q; want portMappings, ips or mac", name)
		}
	}
	for i, p := range s.IPAM {
		if err := p.check(); err != nil {
			return fmt.Errorf("ipam[%d]: %w", i, err)
		}
	}
	for _, node := range append(slices.Clone(s.Nodes), s.Node) {
		if _, err := netip.ParseAddr(node); err != nil && node != "" {
			return fmt.Errorf("node: %q is not an address", node)
		}
	}
	return nil
}

func (p pool) check() error {
	if !p.Subnet.IsValid() {
		return errors.New("subnet: missing")
	}
	if p.Range.IsValid() && (p.Range.Bits() < p.Subnet.Bits() || !p.Subnet.Contains(p.Range.Addr())) {
		return fmt.Errorf("range: %s is not in %s", p.Range, p.Subnet)
	}
	if p.Gateway != "" {
		if err := p.checkAddress(p.Gateway); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	for name, text := range p.AuxAddresses {
		if err := p.checkAddress(text); err != nil {
			return fmt.Errorf("auxAddresses: %s: %w", name, err)
		}
	}
	return nil
}

// checkAddress checks an address with or without a prefix length.
func (p pool) checkAddress(text string) error {
	ip, err := addressOf(text)
	if err != nil {
		return err
	}
	if !p.Subnet.Contains(ip) {
		return fmt.Errorf("%s is not in %s", text, p.Subnet)
	}
	return nil
}

// addressOf reads an address with or without a prefix length.
func addressOf(text string) (netip.Addr, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("%q is not an address", text)
	}
	return ip, nil
}

// networkID is the network's ID at the driver. It follows from what the driver is told about the
// network: another configuration is another network, and machines that share a driver of global scope
// have the same ID for the same configuration.
func (s *settings) networkID() (string, error) {
	text, err := json.Marshal(struct {
		Name, Driver string
		IPAM         []pool
		Options      map[string]any
	}{s.Name, s.Driver, s.IPAM, s.Options})
	if err != nil {
		return "", err
	}
	return id("network", string(text)), nil
}

// endpointID is a pod's ID at the driver.
func endpointID(network, uuid, name string) string { return id("endpoint", network, uuid, name) }

// id makes 64 hexadecimal digits. Drivers name links by the first of them.
func id(words ...string) string {
	sum := sha256.Sum256([]byte("kurma\x00" + strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:])
}

// wishes returns what a pod asks for, by capability or as args.
func (s *settings) wishes() (wishes, error) {
	var args struct {
		CNI struct {
			IPs    []string `json:"ips"`
			Labels []struct{ Key, Value string }
		} `json:"cni"`
	}
	if len(s.Args) > 0 {
		if err := json.Unmarshal(s.Args, &args); err != nil {
			return wishes{}, fmt.Errorf("args: %w", err)
		}
	}
	ips := append(slices.Clone(s.Runtime.IPs), args.CNI.IPs...)
	w := wishes{ips: ips, mac: s.Runtime.MAC, labels: make(map[string]string)}
	for _, l := range args.CNI.Labels {
		w.labels[l.Key] = l.Value
	}
	if w.mac != "" {
		if _, err := net.ParseMAC(w.mac); err != nil {
			return w, fmt.Errorf("runtimeConfig: mac: %w", err)
		}
	}
	return w, nil
}
