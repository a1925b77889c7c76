package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"strings"
)

// The messages of the libnetwork remote driver protocol, in the order in which a driver gets them.
//
//	/Plugin.Activate               setup, and the first add
//	/NetworkDriver.GetCapabilities
//	/NetworkDriver.DiscoverNew     if the scope is global, each node
//	/NetworkDriver.CreateNetwork   once
//	  /NetworkDriver.CreateEndpoint                add, each pod
//	  /NetworkDriver.Join
//	  /NetworkDriver.ProgramExternalConnectivity
//	  /NetworkDriver.EndpointOperInfo              the end of add, and check
//	  /NetworkDriver.RevokeExternalConnectivity    del
//	  /NetworkDriver.Leave
//	  /NetworkDriver.DeleteEndpoint
//	/NetworkDriver.DiscoverDelete  a node that has left the configuration
//	/NetworkDriver.DeleteNetwork   the network has left the configuration

type manifest struct {
	Implements []string
}

type capabilities struct {
	Scope string // "local" or "global"
}

type createNetwork struct {
	NetworkID string
	Options   map[string]any
	IPv4Data  []ipamData
	IPv6Data  []ipamData
}

type ipamData struct {
	AddressSpace string
	Pool         string
	Gateway      string            `json:",omitempty"`
	AuxAddresses map[string]string `json:",omitempty"`
}

// localAddressSpace is the address space of Docker's own IPAM driver, which some drivers expect.
const localAddressSpace = "LocalDefault"

type networkOnly struct {
	NetworkID string
}

type createEndpoint struct {
	NetworkID  string
	EndpointID string
	Options    map[string]any
	Interface  address
}

// address is the Interface of CreateEndpoint and its answer.
type address struct {
	Address     string // IPv4, in CIDR notation
	AddressIPv6 string
	MacAddress  string
}

type createdEndpoint struct {
	Interface *address
}

// endpointOnly names an endpoint. It is the whole request of all calls but three.
type endpointOnly struct {
	NetworkID  string
	EndpointID string
}

type join struct {
	NetworkID  string
	EndpointID string
	SandboxKey string
	Options    map[string]any
}

type joined struct {
	InterfaceName struct {
		SrcName   string
		DstPrefix string
	}
	Gateway      string
	GatewayIPv6  string
	StaticRoutes []staticRoute
}

type staticRoute struct {
	Destination string
	RouteType   int
	NextHop     string
}

// Values of RouteType.
const (
	routeNextHop   = 0
	routeConnected = 1
)

type externalConnectivity struct {
	NetworkID  string
	EndpointID string
	Options    map[string]any
}

type discovery struct {
	DiscoveryType int
	DiscoveryData discoveredNode
}

// nodeDiscovery is the DiscoveryType of nodes.
const nodeDiscovery = 1

// discoveredNode is the DiscoveryData of a node. The document spells the last key "self"; Docker sends "Self", and the
// address that it has bound to on the machine itself.
type discoveredNode struct {
	Address     string
	BindAddress string
	Self        bool
	SelfOfDoc   bool `json:"self"`
}

// node describes a node; own is this machine's address.
func node(address, own string) discoveredNode {
	if address != own {
		return discoveredNode{Address: address}
	}
	return discoveredNode{address, address, true, true}
}

// Options that libnetwork names.
const (
	genericOption      = "com.docker.network.generic"
	enableIPv6Option   = "com.docker.network.enable_ipv6"
	portMapOption      = "com.docker.network.portmap"
	exposedPortsOption = "com.docker.network.endpoint.exposedports"
)

// portBinding and transportPort are the elements of portMapOption and exposedPortsOption. Proto is the
// number of an IP protocol.
type portBinding struct {
	Proto       uint8
	IP          string
	Port        uint16
	HostIP      string
	HostPort    uint16
	HostPortEnd uint16
}

type transportPort struct {
	Proto uint8
	Port  uint16
}

// withGeneric returns options as libnetwork passes them: under the key of generic data, and flat.
func withGeneric[V any](options map[string]V) map[string]any {
	all := make(map[string]any)
	if len(options) == 0 {
		return all
	}
	for key, value := range options {
		all[key] = value
	}
	all[genericOption] = maps.Clone(options)
	return all
}

// creation is the request that creates the network. As with Docker, it has generic options, empty without options of
// the network, and says whether the network has IPv6: some drivers fail without either.
func (s *settings) creation(id string) createNetwork {
	c := createNetwork{NetworkID: id, Options: withGeneric(s.Options), IPv4Data: []ipamData{}, IPv6Data: []ipamData{}}
	for _, p := range s.IPAM {
		data := ipamData{
			AddressSpace: cmp.Or(p.AddressSpace, localAddressSpace), Pool: p.Subnet.Masked().String(),
			Gateway: p.Gateway, AuxAddresses: p.AuxAddresses,
		}
		if p.Subnet.Addr().Is4() {
			c.IPv4Data = append(c.IPv4Data, data)
			continue
		}
		c.IPv6Data = append(c.IPv6Data, data)
	}
	if len(s.Options) == 0 {
		c.Options[genericOption] = map[string]any{}
	}
	if _, set := c.Options[enableIPv6Option]; !set {
		c.Options[enableIPv6Option] = len(c.IPv6Data) > 0
	}
	return c
}

// endpointOptions are the Options of a pod's requests: its labels and its ports, which are empty lists without ports,
// as with Docker.
func (s *settings) endpointOptions(labels map[string]string) (map[string]any, error) {
	options := withGeneric(labels)
	bindings, exposed := []portBinding{}, []transportPort{}
	for _, m := range s.Runtime.PortMappings {
		proto, ok := map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}[strings.ToLower(m.Protocol)]
		if !ok {
			return nil, fmt.Errorf("port %d: protocol %q: want tcp, udp or sctp", m.ContainerPort, m.Protocol)
		}
		if _, err := netip.ParseAddr(m.HostIP); err != nil && m.HostIP != "" {
			return nil, fmt.Errorf("port %d: hostIP: %w", m.ContainerPort, err)
		}
		bindings = append(bindings, portBinding{
			Proto: proto, Port: m.ContainerPort, HostIP: m.HostIP, HostPort: m.HostPort, HostPortEnd: m.HostPort,
		})
		exposed = append(exposed, transportPort{proto, m.ContainerPort})
	}
	options[portMapOption], options[exposedPortsOption] = bindings, exposed
	return options, nil
}
