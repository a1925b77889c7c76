package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/docker/go-plugins-helpers/network"
	"github.com/vishvananda/netlink"
)

// bridges is the driver. Links have the first digits of an ID in their names.
type bridges struct {
	addresses netip.Prefix // not valid: the driver gives none
	scope     string

	mu        sync.Mutex
	last      netip.Addr           // the address that was given last
	gateways  map[string][2]string // of each network, IPv4 and IPv6
	endpoints map[string]bool      // whether it has links
}

func newBridges(addresses, scope string) *bridges {
	b := &bridges{scope: scope, gateways: make(map[string][2]string), endpoints: make(map[string]bool)}
	if addresses != "" {
		b.addresses = netip.MustParsePrefix(addresses)
		b.last = b.addresses.Addr()
	}
	return b
}

func bridgeOf(id string) string { return "td" + id[:8] }
func hostEnd(id string) string  { return "tdh" + id[:8] }
func podEnd(id string) string   { return "tdp" + id[:8] }

// GetCapabilities implements network.Driver.
func (b *bridges) GetCapabilities() (*network.CapabilitiesResponse, error) {
	return &network.CapabilitiesResponse{Scope: b.scope}, nil
}

// CreateNetwork implements network.Driver. The gateway's address, which must be in CIDR form, is the bridge's.
func (b *bridges) CreateNetwork(r *network.CreateNetworkRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.gateways[r.NetworkID]; has {
		return errors.New("the network exists")
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeOf(r.NetworkID)
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	var gateways [2]string
	for i, data := range [][]*network.IPAMData{r.IPv4Data, r.IPv6Data} {
		for _, pool := range data {
			address, err := netlink.ParseAddr(pool.Gateway)
			if err != nil {
				return errors.Join(err, netlink.LinkDel(bridge))
			}
			if i == 1 {
				address.Flags = 2 // IFA_F_NODAD
			}
			if err := netlink.AddrAdd(bridge, address); err != nil {
				return errors.Join(err, netlink.LinkDel(bridge))
			}
			gateways[i] = address.IP.String()
		}
	}
	b.gateways[r.NetworkID] = gateways
	return netlink.LinkSetUp(bridge)
}

// DeleteNetwork implements network.Driver.
func (b *bridges) DeleteNetwork(r *network.DeleteNetworkRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.gateways[r.NetworkID]; !has {
		return errors.New("no such network")
	}
	if len(b.endpoints) > 0 {
		return errors.New("the network has endpoints")
	}
	delete(b.gateways, r.NetworkID)
	return remove(bridgeOf(r.NetworkID))
}

// CreateEndpoint implements network.Driver.
func (b *bridges) CreateEndpoint(r *network.CreateEndpointRequest) (*network.CreateEndpointResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.gateways[r.NetworkID]; !has {
		return nil, errors.New("no such network")
	}
	b.endpoints[r.EndpointID] = false
	answer := &network.EndpointInterface{}
	if r.Interface.Address == "" && r.Interface.AddressIPv6 == "" && b.addresses.IsValid() {
		b.last = b.last.Next()
		answer.Address = netip.PrefixFrom(b.last, b.addresses.Bits()).String()
	}
	if r.Interface.MacAddress == "" {
		id := r.EndpointID
		answer.MacAddress = fmt.Sprintf("02:%s:%s:%s:%s:%s", id[:2], id[2:4], id[4:6], id[6:8], id[8:10])
	}
	return &network.CreateEndpointResponse{Interface: answer}, nil
}

// DeleteEndpoint implements network.Driver. The pod's end must be back on the host under its old name.
func (b *bridges) DeleteEndpoint(r *network.DeleteEndpointRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	links, has := b.endpoints[r.EndpointID]
	if !has {
		return errors.New("no such endpoint")
	}
	delete(b.endpoints, r.EndpointID)
	if !links {
		return nil
	}
	if err := remove(podEnd(r.EndpointID)); err != nil {
		return errors.Join(err, remove(hostEnd(r.EndpointID)))
	}
	return nil
}

// Join implements network.Driver.
func (b *bridges) Join(r *network.JoinRequest) (*network.JoinResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bridge, err := netlink.LinkByName(bridgeOf(r.NetworkID))
	if err != nil {
		return nil, err
	}
	if _, has := b.endpoints[r.EndpointID]; !has {
		return nil, errors.New("no such endpoint")
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex, attrs.Flags = hostEnd(r.EndpointID), bridge.Attrs().Index, net.FlagUp
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: podEnd(r.EndpointID)}); err != nil {
		return nil, err
	}
	b.endpoints[r.EndpointID] = true
	gateways := b.gateways[r.NetworkID]
	answer := &network.JoinResponse{
		InterfaceName: network.InterfaceName{SrcName: podEnd(r.EndpointID), DstPrefix: "net"},
		Gateway:       gateways[0], GatewayIPv6: gateways[1],
	}
	if gateways[0] != "" {
		answer.StaticRoutes = []*network.StaticRoute{
			{Destination: "198.51.100.128/25", NextHop: gateways[0]}, {Destination: "198.51.100.0/25", RouteType: 1},
		}
	}
	return answer, nil
}

func remove(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// Leave implements network.Driver.
func (b *bridges) Leave(*network.LeaveRequest) error { return nil }

// EndpointInfo implements network.Driver.
func (b *bridges) EndpointInfo(r *network.InfoRequest) (*network.InfoResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.endpoints[r.EndpointID]; !has {
		return nil, errors.New("no such endpoint")
	}
	return &network.InfoResponse{Value: map[string]string{"link": podEnd(r.EndpointID)}}, nil
}

// DiscoverNew implements network.Driver.
func (b *bridges) DiscoverNew(*network.DiscoveryNotification) error { return nil }

// DiscoverDelete implements network.Driver.
func (b *bridges) DiscoverDelete(*network.DiscoveryNotification) error { return nil }

// ProgramExternalConnectivity implements network.Driver.
func (b *bridges) ProgramExternalConnectivity(*network.ProgramExternalConnectivityRequest) error {
	return nil
}

// RevokeExternalConnectivity implements network.Driver.
func (b *bridges) RevokeExternalConnectivity(*network.RevokeExternalConnectivityRequest) error {
	return nil
}

// AllocateNetwork implements network.Driver. It is for Docker's swarm, as is FreeNetwork.
func (b *bridges) AllocateNetwork(*network.AllocateNetworkRequest) (*network.AllocateNetworkResponse, error) {
	return nil, errors.ErrUnsupported
}

// FreeNetwork implements network.Driver.
func (b *bridges) FreeNetwork(*network.FreeNetworkRequest) error { return errors.ErrUnsupported }
