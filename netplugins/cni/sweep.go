package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/ip"
	"github.com/containernetworking/plugins/pkg/utils"
	"github.com/coreos/go-iptables/iptables"
	"github.com/mattn/go-shellwords"
)

// A DEL that was killed may have removed the pod's link, and not yet its masquerade rules. The next
// DEL of bridge and ptp finds no link, so no addresses, and leaves the rules. A file marks a DEL
// under way: the DEL that finds one removes the rules itself. So does the DEL of a pod whose network namespace
// is gone, and the link with it.

// begin marks the DEL of a pod, and reports whether an earlier one was interrupted.
func (c *cni) begin(n *network, rt *libcni.RuntimeConf) (done func() error, interrupted bool, err error) {
	mark := filepath.Join(c.cache, "deleting", filepath.Base(c.cached(n, rt)))
	if err := os.MkdirAll(filepath.Dir(mark), 0o755); err != nil {
		return nil, false, err
	}
	file, err := os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if interrupted = errors.Is(err, os.ErrExist); interrupted {
		err = nil
	}
	done = func() error {
		err := os.Remove(mark)
		if errors.Is(err, os.ErrNotExist) {
			return nil // the DEL of a launcher that was killed has ended by itself after all
		}
		return err
	}
	return done, interrupted, err
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
