package sandboxes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

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

// restoreLink sees to it that the pinned namespace has the sandbox's link, with the addresses, so that DEL finds them.
// A link that is gone is replaced by one that leads nowhere. Without an address there is nothing to find.
func restoreLink(pin string, addresses []net.IPNet) error {
	if len(addresses) == 0 {
		return nil
	}
	err := thread.New(func() error {
		if err := enterNetwork(pin); err != nil {
			return err
		}
		return haveLink(addresses)
	})
	if err != nil {
		return fmt.Errorf("restore link %s for DEL: %w", interfaceName, err)
	}
	return nil
}

// deleteRestored calls a plugin's DEL with the link that restoreLink has made. DEL of bridge and ptp fails if it is
// repeated after it has removed the rules: iptables refuses a rule with a jump to a chain that is not there. Then there
// is no such rule, as the kernel keeps a chain with jumps to it, and the next DEL finds the other addresses alone.
func deleteRestored(pin string, addresses []net.IPNet, del func() error) error {
	err := del()
	for len(addresses) > 0 && chainIsGone(err) {
		addresses = addresses[1:]
		err = errors.Join(restoreLink(pin, addresses), del())
	}
	return err
}

// goneChain is the error of iptables, of both its kinds, about a jump to a chain that is not there.
var goneChain = regexp.MustCompile("Chain '[^']+' does not exist|Couldn't load target `[^']+':No such file")

// chainIsGone reports whether DEL fails for one command of iptables alone, because its chain is gone.
func chainIsGone(err error) bool {
	return err != nil && goneChain.MatchString(err.Error()) && strings.Count(err.Error(), "running [") == 1
}

// addressesOf returns the addresses of a plugin's result, nil for none, in the order in which DEL finds them at a link.
func addressesOf(version string, result json.RawMessage) ([]net.IPNet, error) {
	if result == nil {
		return nil, nil
	}
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
	slices.SortStableFunc(all, func(a, b net.IPNet) int { return cmp.Compare(len(a.Mask), len(b.Mask)) }) // IPv4 first
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
