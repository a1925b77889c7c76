// Package netlimit limits the bandwidth of a pod's network (appc, ace.md,
// resource/network-bandwidth). The apps of a pod share its network, so the limit applies to
// the pod: to each of its interfaces except loopback.
package netlimit

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxRate is the highest rate that the kernel's arithmetic can handle, in bytes a second; no
// interface is as fast.
const maxRate = 1 << 40

// Limit limits each interface of the calling thread's network namespace, except loopback, to
// rate bytes a second in each direction. The error names each interface and direction that Limit
// could not limit; the others are limited. The limits end with the namespace.
func Limit(rate uint64) error {
	rate = min(rate, maxRate)
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
		if err := limitReceiving(attrs.Index, fmt.Sprintf("limit-ifb%d", n), rate); err != nil {
			errs = append(errs, fmt.Errorf("limit what %s receives: %w", attrs.Name, err))
		}
	}
	return errors.Join(errs...)
}

// limitSending limits what the interface sends with a token bucket (tc-tbf(8)).
func limitSending(link int, rate uint64) error {
	burst := uint32(max(32<<10, min(rate/100, 1<<30))) // a hundredth of a second
	queue := min(uint64(burst)+rate/10, math.MaxUint32)
	return netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Limit: uint32(queue), Buffer: netlink.Xmittime(rate, burst),
	})
}

// limitReceiving redirects incoming packets through an ifb device made for this, which limits
// them: the kernel can only shape packets that a device sends.
func limitReceiving(link int, name string, rate uint64) error {
	via := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(via); err != nil {
		return fmt.Errorf("make device %s: %w", name, err)
	}
	if err := errors.Join(limitSending(via.Index, rate), netlink.LinkSetUp(via)); err != nil {
		return err
	}
	ingress := netlink.MakeHandle(0xffff, 0)
	if err := netlink.QdiscReplace(&netlink.Ingress{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: ingress, Parent: netlink.HANDLE_INGRESS},
	}); err != nil {
		return err
	}
	return netlink.FilterReplace(&netlink.U32{ // without a selector it matches every packet
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link, Parent: ingress, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(via.Index)},
	})
}
