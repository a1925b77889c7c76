// Command sample is a network plugin to copy: it connects each pod to the machine by a pair of
// virtual Ethernet devices, with an address of the subnet in its configuration:
//
//	{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "eth0", "subnet": "10.99.0.0/24"}
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"kurma.io/stager/netplugins/plugin"
)

func main() { plugin.Main(sample{}) }

// sample is the plugin.
type sample struct{}

// settings are the keys of the configuration that this plugin has.
type settings struct {
	Subnet netip.Prefix `json:"subnet"`
}

// Setup implements plugin.Plugin: it checks the configuration.
func (sample) Setup(_ context.Context, config []byte) error {
	var s settings
	if err := json.Unmarshal(config, &s); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if !s.Subnet.Addr().Is4() || s.Subnet.Bits() > 30 {
		return fmt.Errorf("subnet: want an IPv4 subnet of at most 30 bits")
	}
	return os.MkdirAll(plugin.RunDir, 0o755)
}

// Add implements plugin.Plugin.
func (sample) Add(_ context.Context, config []byte, pod plugin.Pod) (*plugin.Result, error) {
	var s settings
	if err := json.Unmarshal(config, &s); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	ip, err := reserve(s.Subnet, pod.UUID)
	if err != nil {
		return nil, err
	}
	gateway := s.Subnet.Masked().Addr().Next()
	if err := makeLinks(pod, ip, gateway); err != nil {
		return nil, err
	}
	return &plugin.Result{IP4: &plugin.IP{IP: ip.String() + "/32", Gateway: gateway.String()}}, nil
}

// Del implements plugin.Plugin. A link that is gone has taken its other end and routes along.
func (sample) Del(_ context.Context, _ []byte, pod plugin.Pod) error {
	link, err := netlink.LinkByName(hostLink(pod))
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) {
		return fmt.Errorf("remove link: %w", err)
	}
	return release(pod.UUID)
}

// hostLink names the machine's end of the pair by the pod's UUID, so that Del finds it.
func hostLink(pod plugin.Pod) string { return "smp" + pod.UUID[:min(8, len(pod.UUID))] }

// reserve takes an address of the subnet for a pod. A link to the pod's UUID marks an address as
// taken: symlink(2) fails if another run of the plugin has made one.
func reserve(subnet netip.Prefix, uuid string) (netip.Addr, error) {
	for ip := subnet.Masked().Addr().Next().Next(); subnet.Contains(ip.Next()); ip = ip.Next() {
		err := os.Symlink(uuid, filepath.Join(plugin.RunDir, ip.String()))
		if err == nil || !errors.Is(err, os.ErrExist) {
			return ip, err
		}
	}
	return netip.Addr{}, fmt.Errorf("no address of %s is free", subnet)
}

// release frees the addresses of a pod.
func release(uuid string) error {
	entries, err := os.ReadDir(plugin.RunDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(plugin.RunDir, e.Name())
		if owner, err := os.Readlink(path); err == nil && owner == uuid {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}
