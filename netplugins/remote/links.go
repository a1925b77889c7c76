package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/netplugins/plugin"
)

// linker moves and configures links.
type linker interface {
	// choose returns the name of a link in the pod: the pod's, else one that begins with the link's prefix
	// and ends in a number. It is an error if the pod has a link of that name, or of the link's on the host.
	choose(pod plugin.Pod, l link) (name string, err error)
	// attach moves a link from the host into the pod under a name, and configures it.
	attach(pod plugin.Pod, name string, l link) error
	// detach moves it back under its old name. It ignores a link, or a namespace, that is gone.
	detach(pod plugin.Pod, l movedLink) error
}

// kernel is the linker of the machine.
type kernel struct {
	host *os.File // the host's network namespace
}

// openKernel opens the calling thread's network namespace as the host's.
func openKernel() (*kernel, error) {
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the host's network namespace: %w", err)
	}
	return &kernel{file}, nil
}

// choose implements linker.
func (k *kernel) choose(pod plugin.Pod, l link) (name string, err error) {
	err = pod.In(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list links of the pod: %w", err)
		}
		taken := make(map[string]bool)
		for _, other := range links {
			taken[other.Attrs().Name] = true
		}
		name = pod.Interface
		for i := 0; name == "" || pod.Interface == "" && taken[name]; i++ {
			name = fmt.Sprintf("%s%d", l.Prefix, i)
		}
		for _, want := range []string{name, l.Source} {
			if taken[want] {
				return fmt.Errorf("the pod has a link %s already", want)
			}
		}
		return nil
	})
	return name, err
}

// attach implements linker.
func (k *kernel) attach(pod plugin.Pod, name string, l link) error {
	found, err := netlink.LinkByName(l.Source)
	if err != nil {
		return fmt.Errorf("find the driver's link %s: %w", l.Source, err)
	}
	namespace, err := os.Open(pod.Namespace)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer namespace.Close()
	if err := netlink.LinkSetNsFd(found, int(namespace.Fd())); err != nil {
		return fmt.Errorf("move link %s into the pod: %w", l.Source, err)
	}
	return pod.In(func() error { return l.configure(name) })
}

// configure renames the link in the calling thread's namespace, and sets its addresses and routes.
func (l link) configure(name string) error {
	found, err := netlink.LinkByName(l.Source)
	if err != nil {
		return fmt.Errorf("find link %s in the pod: %w", l.Source, err)
	}
	if err := netlink.LinkSetDown(found); err != nil {
		return fmt.Errorf("bring down link %s: %w", l.Source, err)
	}
	if err := netlink.LinkSetName(found, name); err != nil {
		return fmt.Errorf("rename link %s to %s: %w", l.Source, name, err)
	}
	if l.MAC != nil {
		if err := netlink.LinkSetHardwareAddr(found, l.MAC); err != nil {
			return fmt.Errorf("set address of link %s to %s: %w", name, l.MAC, err)
		}
	}
	for _, prefix := range l.Addresses {
		if err := setAddress(found, name, prefix); err != nil {
			return fmt.Errorf("set address of link %s to %s: %w", name, prefix, err)
		}
	}
	if err := netlink.LinkSetUp(found); err != nil {
		return fmt.Errorf("bring up link %s: %w", name, err)
	}
	return l.addRoutes(found.Attrs().Index)
}

func setAddress(found netlink.Link, name string, prefix netip.Prefix) error {
	address := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD // the address is assigned: a pod must not wait for its probes
		// An administrator may have turned off IPv6 for new links.
		file := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
		if err := os.WriteFile(file, []byte("0"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return netlink.AddrAdd(found, address)
}

// addRoutes adds the routes: first the connected ones, through which the others lead. A default route
// is added only if the pod has none of its family.
func (l link) addRoutes(index int) error {
	for _, to := range l.Connected {
		if err := addRoute(to, netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK}); err != nil {
			return err
		}
	}
	for _, r := range l.Routes {
		if err := addRoute(r.To, netlink.Route{LinkIndex: index, Gw: r.Via.AsSlice()}); err != nil {
			return err
		}
	}
	for _, gateway := range l.Gateways {
		everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gateway.Is6() {
			everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := addRoute(everything, netlink.Route{LinkIndex: index, Gw: gateway.WithZone("").AsSlice()}); err != nil {
			return fmt.Errorf("gateway %s: %w", gateway, err)
		}
	}
	return nil
}

// addRoute adds a route, but a default route only if the pod has none of its family.
func addRoute(to netip.Prefix, r netlink.Route) error {
	if to.Bits() == 0 {
		family := netlink.FAMILY_V4
		if to.Addr().Is6() {
			family = netlink.FAMILY_V6
		}
		if has, err := plugin.HasDefaultRoute(family); err != nil || has {
			return err
		}
	}
	r.Dst = ipNet(to)
	if err := netlink.RouteAdd(&r); err != nil {
		return fmt.Errorf("add route to %s: %w", to, err)
	}
	return nil
}

// detach implements linker.
func (k *kernel) detach(pod plugin.Pod, l movedLink) error {
	if _, err := os.Stat(pod.Namespace); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return pod.In(func() error {
		found, err := findMoved(l)
		if err != nil || found == nil {
			return err
		}
		if err := netlink.LinkSetDown(found); err != nil {
			return fmt.Errorf("bring down link %s: %w", found.Attrs().Name, err)
		}
		if found.Attrs().Name != l.Source {
			if err := netlink.LinkSetName(found, l.Source); err != nil {
				return fmt.Errorf("rename link %s to %s: %w", l.Name, l.Source, err)
			}
		}
		if err := netlink.LinkSetNsFd(found, int(k.host.Fd())); err != nil {
			return fmt.Errorf("move link %s back to the host: %w", l.Source, err)
		}
		return nil
	})
}

// findMoved finds a link in the calling thread's namespace, by its old name if it was not renamed yet.
func findMoved(l movedLink) (netlink.Link, error) {
	for _, name := range []string{l.Name, l.Source} {
		found, err := netlink.LinkByName(name)
		if err == nil {
			return found, nil
		}
		if missing := (netlink.LinkNotFoundError{}); !errors.As(err, &missing) {
			return nil, fmt.Errorf("find link %s: %w", name, err)
		}
	}
	return nil, nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
