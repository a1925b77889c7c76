package sandboxes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"kurma.io/stager/internal/thread"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The DEL of bridge and ptp removes masquerade rules by the addresses of the pod's link. DEL succeeds and leaves the
// rules if the link is gone, as after a DEL that failed or was killed, or if the app has changed its addresses.

// masquerades reports whether a plugin of the list masquerades addresses.
func masquerades(list *libcni.NetworkConfigList) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		var conf struct {
			IPMasq bool `json:"ipMasq"`
		}
		return json.Unmarshal(p.Bytes, &conf) == nil && conf.IPMasq
	})
}

// restoreLink sees to it that the pinned namespace has the sandbox's link, with the addresses of the result, so that
// DEL finds them. A link that is gone is replaced by one that leads nowhere.
func restoreLink(pin, version string, result json.RawMessage) error {
	if result == nil {
		return nil
	}
	addresses, err := addressesOf(version, result)
	if err == nil {
		err = thread.New(func() error {
			if err := enterNetwork(pin); err != nil {
				return err
			}
			return haveLink(addresses)
		})
	}
	if err != nil {
		return fmt.Errorf("restore link %s for DEL: %w", interfaceName, err)
	}
	return nil
}

// addressesOf returns the addresses of a plugin's result.
func addressesOf(version string, result json.RawMessage) ([]net.IPNet, error) {
	r, err := cniversion.NewResult(version, result)
	if err != nil {
		return nil, err
	}
	now, err := types100.NewResultFromResult(r)
	if err != nil {
		return nil, err
	}
	var all []net.IPNet
	for _, ip := range now.IPs {
		all = append(all, ip.Address)
	}
	return all, nil
}

// enterNetwork moves the calling thread into a pinned network namespace.
func enterNetwork(pin string) error {
	file, err := os.Open(pin)
	if err != nil {
		return err
	}
	defer file.Close()
	return os.NewSyscallError("setns", unix.Setns(int(file.Fd()), unix.CLONE_NEWNET))
}

// haveLink makes the link in the calling thread's namespace unless it is there, and gives it the addresses it lacks.
func haveLink(addresses []net.IPNet) error {
	link, err := netlink.LinkByName(interfaceName)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = interfaceName
		// A pair, as bridge and ptp make: the kernel has its module.
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: interfaceName + "-peer"}); err != nil {
			return err
		}
		link, err = netlink.LinkByName(interfaceName)
	}
	if err != nil {
		return err
	}
	has, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, want := range addresses {
		if slices.ContainsFunc(has, func(a netlink.Addr) bool { return a.IP.Equal(want.IP) }) {
			continue
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &want}); err != nil {
			return fmt.Errorf("add address %s: %w", &want, err)
		}
	}
	return nil
}
