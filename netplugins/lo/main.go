// Command lo is lo-netplugin: it brings up a pod's loopback interface. Its configuration has no
// keys of its own.
package main

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"kurma.io/stager/netplugins/plugin"
)

func main() { plugin.Main(loopback{}) }

// loopback is the plugin.
type loopback struct{}

// Setup implements plugin.Plugin.
func (loopback) Setup(context.Context, []byte) error { return nil }

// Add implements plugin.Plugin. It returns the addresses that the kernel has given the link.
func (loopback) Add(_ context.Context, _ []byte, pod plugin.Pod) (*plugin.Result, error) {
	result := &plugin.Result{}
	return result, pod.In(func() error { return bringUp(result) })
}

// bringUp brings up the loopback of the calling thread's network namespace.
func bringUp(result *plugin.Result) error {
	if err := plugin.Configure("lo"); err != nil {
		return err
	}
	link, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of loopback: %w", err)
	}
	for _, a := range addresses {
		into := &result.IP6
		if a.IP.To4() != nil {
			into = &result.IP4
		}
		if *into == nil {
			*into = &plugin.IP{IP: a.IPNet.String()}
		}
	}
	return nil
}

// Del implements plugin.Plugin. The kernel removes loopback with the namespace.
func (loopback) Del(context.Context, []byte, plugin.Pod) error { return nil }
