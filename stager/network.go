package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The apps of a pod share its network, so what is limited is the pod's: all of
// its interfaces but loopback (appc, ace.md, resource/network-bandwidth).

// The kernel's arithmetic takes rates between these, in bytes a second; no
// interface is as fast as the second.
const (
	minNetworkRate = 1 << 10
	maxNetworkRate = 1 << 40
)

// limitNetwork limits the pod's interfaces, and says in its isolators' fates
// what could not be.
func (b *boot) limitNetwork() error {
	rate := b.pod.NetworkBandwidth
	fates := [][]isolatorFate{b.pod.Fates}
	for _, plan := range b.plans {
		rate = least(rate, plan.NetworkBandwidth)
		fates = append(fates, plan.Fates)
	}
	if rate == 0 {
		return nil
	}
	err := limitInterfaces(rate)
	if err == nil {
		return nil
	}
	if b.config.StrictIsolators {
		return fmt.Errorf("limit network, as stagerConfig.strictIsolators asks for: %w", err)
	}
	b.log.Warn("the network's limit is not what it should be", "error", err)
	for _, list := range fates {
		for i := range list {
			if f := &list[i]; f.Name == "resource/network-bandwidth" && f.Fate != ignored {
				f.Fate, f.Why = modified, err.Error()
			}
		}
	}
	return nil
}

// least is the lower of two limits, of which 0 is none.
func least(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// limitInterfaces limits each interface of the calling thread's network
// namespace to rate bytes a second in each direction, loopback excepted. It does
// what it can and tells what it cannot.
func limitInterfaces(rate uint64) error {
	rate = min(rate, maxNetworkRate)
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for n, link := range links {
		attrs := link.Attrs()
		if attrs.RawFlags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		if err := limitSending(attrs.Index, rate); err != nil {
			errs = append(errs, fmt.Errorf("limit what %s sends: %w", attrs.Name, err))
		}
		if err := limitReceiving(attrs.Index, fmt.Sprintf("stager-ifb%d", n), rate); err != nil {
			errs = append(errs, fmt.Errorf("limit what %s receives: %w", attrs.Name, err))
		}
	}
	return errors.Join(errs...)
}

// limitSending lets a token bucket send for the interface (tc-tbf(8)).
func limitSending(link int, rate uint64) error {
	burst := uint32(max(32<<10, min(rate/100, 1<<30))) // a hundredth of a second
	queue := min(uint64(burst)+rate/10, math.MaxUint32)
	return netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: uint32(queue), Buffer: netlink.Xmittime(rate, burst),
	})
}

// limitReceiving leads what comes in through a device that is there for
// nothing else and sends it on at the rate: the kernel only shapes what is sent.
func limitReceiving(link int, name string, rate uint64) error {
	via := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(via); err != nil {
		return fmt.Errorf("make device %s: %w", name, err)
	}
	if err := errors.Join(limitSending(via.Index, rate), netlink.LinkSetUp(via)); err != nil {
		return err
	}
	if err := netlink.QdiscReplace(&netlink.Ingress{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS},
	}); err != nil {
		return err
	}
	return netlink.FilterReplace(&netlink.U32{ // which matches everything without a selector
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(via.Index)},
	})
}
