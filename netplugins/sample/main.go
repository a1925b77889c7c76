// Command sample is a network plugin to copy: it connects each pod to the machine by a pair of
// virtual Ethernet devices, with an address of the subnet in its configuration:
//
//	{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "eth0", "subnet": "10.99.0.0/24"}
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"kurma.io/stager/netplugins/plugin"
)

func main() { plugin.Main(sample{plugin.Addresses{Dir: plugin.RunDir}}) }

// sample is the plugin.
type sample struct{ addresses plugin.Addresses }

// settings are the keys of the configuration that this plugin has.
type settings struct {
	Subnet netip.Prefix `json:"subnet"`
}

func read(config []byte) (settings, error) {
	var s settings
	if err := json.Unmarshal(config, &s); err != nil {
		return s, fmt.Errorf("read configuration: %w", err)
	}
	if !s.Subnet.Addr().Is4() || s.Subnet.Bits() > 30 {
		return s, errors.New("subnet: want an IPv4 subnet of at most 30 bits")
	}
	return s, nil
}

// Setup implements plugin.Plugin: it checks the configuration.
func (sample) Setup(_ context.Context, config []byte) error {
	_, err := read(config)
	return err
}

// Add implements plugin.Plugin.
func (p sample) Add(_ context.Context, config []byte, pod plugin.Pod) (*plugin.Result, error) {
	s, err := read(config)
	if err != nil {
		return nil, err
	}
	ip, gateway, err := p.addresses.Reserve(s.Subnet, pod.UUID)
	if err != nil {
		return nil, err
	}
	// The pod reaches the gateway by its link.
	there := &plugin.IP{
		IP: ip.String() + "/32", Gateway: gateway.String(),
		Routes: []plugin.Route{{Dst: gateway.String() + "/32"}},
	}
	here := &plugin.IP{IP: gateway.String() + "/32", Routes: []plugin.Route{{Dst: ip.String() + "/32"}}}
	if err := makePair(pod); err != nil {
		return nil, err
	}
	if err := pod.In(func() error { return configure(pod.Interface, there) }); err != nil {
		return nil, err
	}
	return &plugin.Result{IP4: there}, plugin.Configure(hostLink(pod), here)
}

// configure brings up the pod's end. The pod reaches everything else by the gateway, unless another network, which
// it was connected to before, has given it the default route.
func configure(link string, ip *plugin.IP) error {
	taken, err := plugin.HasDefaultRoute(netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	if !taken {
		ip.Routes = append(ip.Routes, plugin.Route{Dst: "0.0.0.0/0", GW: ip.Gateway})
	}
	return plugin.Configure(link, ip)
}

// Del implements plugin.Plugin. A link that is gone has taken its other end and routes along.
func (p sample) Del(_ context.Context, _ []byte, pod plugin.Pod) error {
	return errors.Join(plugin.RemoveLink(hostLink(pod)), p.addresses.Release(pod.UUID))
}

// hostLink names the machine's end of the pair by the pod's UUID and interface, so that Del finds it, and a pod may
// be on several networks of this plugin. A name has at most 15 characters.
func hostLink(pod plugin.Pod) string {
	sum := sha256.Sum256([]byte(pod.UUID + "/" + pod.Interface))
	return "smp" + hex.EncodeToString(sum[:6])
}

// makePair makes the devices, the other one in the pod.
func makePair(pod plugin.Pod) error {
	namespace, err := os.Open(pod.Namespace)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer namespace.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = hostLink(pod)
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: pod.Interface, PeerNamespace: netlink.NsFd(namespace.Fd())}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make links: %w", err)
	}
	return nil
}
