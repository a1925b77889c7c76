package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/ip"
	"github.com/containernetworking/plugins/pkg/utils"
	"github.com/coreos/go-iptables/iptables"
	"github.com/mattn/go-shellwords"
	"github.com/vishvananda/netlink"

	"kurma.io/stager/netplugins/plugin"
)

// The DEL of bridge and ptp removes masquerade rules by the addresses of the pod's link. It leaves the rules if the
// link is gone, as after a DEL that was killed, or with the pod's network namespace, or if the app has changed its
// addresses. Then this plugin removes the rules.

// hasAddresses reports whether the pod's link is there with these addresses, of which there is one at least.
func hasAddresses(rt *libcni.RuntimeConf, addresses []netip.Addr) bool {
	var has []netip.Addr
	err := plugin.Pod{Namespace: rt.NetNS}.In(func() error {
		link, err := netlink.LinkByName(rt.IfName)
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range all {
			if address, ok := netip.AddrFromSlice(a.IP); ok {
				has = append(has, address.Unmap())
			}
		}
		return err
	})
	missing := func(address netip.Addr) bool { return !slices.Contains(has, address) }
	return err == nil && len(addresses) > 0 && !slices.ContainsFunc(addresses, missing)
}

// sweepAlone is sweep while no plugin changes the tables.
func sweepAlone(ctx context.Context, network string, rt *libcni.RuntimeConf) error {
	lock, err := lockTables(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return sweep(network, rt)
}

// sweep removes what bridge and ptp have made for a pod in the tables of iptables and nftables, by
// the names that they derive from the network and the pod.
func sweep(network string, rt *libcni.RuntimeConf) error {
	chain := utils.FormatChainName(network, rt.ContainerID)
	var errs []error
	for _, protocol := range []iptables.Protocol{iptables.ProtocolIPv4, iptables.ProtocolIPv6} {
		if utils.SupportsIPTables() {
			errs = append(errs, sweepChain(protocol, chain))
		}
	}
	// Without addresses this removes the rules of nftables alone.
	errs = append(errs, ip.TeardownIPMasqForNetworks(nil, network, rt.IfName, rt.ContainerID))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove masquerade rules: %w", err)
	}
	return nil
}

func sweepChain(protocol iptables.Protocol, chain string) error {
	tables, err := iptables.New(iptables.IPFamily(protocol))
	if err != nil {
		return err
	}
	rules, err := tables.List("nat", "POSTROUTING")
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if !strings.HasSuffix(rule, "-j "+chain) {
			continue
		}
		// Not by its number, which is another rule's once another program, such as Docker, has changed the chain.
		words, err := shellwords.Parse(rule)
		if err == nil {
			err = tables.DeleteIfExists("nat", "POSTROUTING", words[2:]...) // without -A POSTROUTING
		}
		if err != nil {
			return err
		}
	}
	if exists, err := tables.ChainExists("nat", chain); err != nil || !exists {
		return err
	}
	return tables.ClearAndDeleteChain("nat", chain)
}

// firewallChain is where the plugin firewall has the rules of pods.
const firewallChain = "CNI-FORWARD"

// tablesLimit is how many seconds a call of iptables waits for that of another program.
const tablesLimit = 5

// sweepFirewall removes the rules of addresses that the DEL of firewall has left: it ignores the errors of iptables. It
// comes before the addresses may be another pod's.
func sweepFirewall(ctx context.Context, addresses []netip.Addr) error {
	lock, err := lockTables(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, address := range addresses {
		if err := removeFirewallRules(address); err != nil {
			return fmt.Errorf("remove the rules of %s in %s: %w", address, firewallChain, err)
		}
	}
	return nil
}

func removeFirewallRules(address netip.Addr) error {
	protocol := iptables.ProtocolIPv4
	if address.Is6() {
		protocol = iptables.ProtocolIPv6
	}
	tables, err := iptables.New(iptables.IPFamily(protocol), iptables.Timeout(tablesLimit))
	if errors.Is(err, exec.ErrNotFound) { // as with firewalld
		return nil
	}
	if err != nil {
		return err
	}
	exists, err := tables.ChainExists("filter", firewallChain)
	if err != nil || !exists {
		return err
	}
	only := netip.PrefixFrom(address, address.BitLen()).String()
	for _, rule := range [][]string{
		{"-d", only, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"}, {"-s", only, "-j", "ACCEPT"},
	} {
		if err := tables.DeleteIfExists("filter", firewallChain, rule...); err != nil {
			return err
		}
	}
	return nil
}
