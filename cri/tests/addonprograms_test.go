package tests

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// addonProgram is the name of this test program as a program of an add-on: /addon WHAT WHERE.
const addonProgram = "addon"

// callAsAddon makes the calls of an add-on that no program of an image makes.
func callAsAddon(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%q: want WHAT and WHERE", args)
	}
	switch what, where := args[0], args[1]; what {
	case "pin":
		return pinProgram(where)
	case "trace":
		return trace(where)
	case "vxlan":
		return makeVXLAN(where)
	default:
		return fmt.Errorf("unknown call %q", what)
	}
}

func passAll() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()} }

// pinProgram loads a map and a filter of packets, and pins both in a folder.
func pinProgram(dir string) error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	if err != nil {
		return err
	}
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: passAll()})
	if err != nil {
		return err
	}
	defer p.Close()
	return errors.Join(m.Put(uint32(1), uint32(2)), m.Pin(dir+"/map"), p.Pin(dir+"/program"))
}

// trace attaches a program to a tracepoint.
func trace(point string) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: passAll()})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: point, Program: p})
	if err != nil {
		return err
	}
	return l.Close()
}

// makeVXLAN makes an interface by netlink, as of an overlay network.
func makeVXLAN(name string) error {
	vxlan := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name}, VxlanId: 7, Port: 8472}
	if err := netlink.LinkAdd(vxlan); err != nil {
		return err
	}
	return netlink.LinkSetUp(vxlan)
}
