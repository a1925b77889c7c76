package main

import (
	"os"
	"strings"
	"time"
)

// accelerator is a way to run the guest's processors.
type accelerator struct {
	name   string
	args   []string      // for qemu
	kernel string        // for the kernel's command line
	limit  time.Duration // to boot
}

// accelerators returns the ways to run a guest here, the best first. KVM is first if there is
// a device and the processor has virtualization; a device alone is not enough, because a host that
// is a virtual machine itself may have one that runs no ordinary kernel. Emulation is
// last: the stager falls back to it if a guest does not boot in time.
func accelerators(device, cpuinfo string) []accelerator {
	// An emulated processor does not speculate: mitigations cost time and have no effect. One thread emulates all
	// processors: with a thread for each, two of them have locked each other up in the guest's kernel (QEMU 7.2, Linux 6.1).
	emulation := accelerator{
		"emulation", []string{"-accel", "tcg,thread=single", "-cpu", "max,la57=off"}, " no_timer_check mitigations=off", 3 * time.Minute,
	}
	text, err := os.ReadFile(cpuinfo)
	if err != nil || !virtualizes(string(text)) {
		return []accelerator{emulation}
	}
	kvm, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return []accelerator{emulation}
	}
	kvm.Close()
	return []accelerator{{"KVM", []string{"-accel", "kvm", "-cpu", "host"}, "", 20 * time.Second}, emulation}
}

// virtualizes reports whether /proc/cpuinfo has Intel's or AMD's flag.
func virtualizes(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if name, flags, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "flags" {
			padded := " " + strings.TrimSpace(flags) + " "
			return strings.Contains(padded, " vmx ") || strings.Contains(padded, " svm ")
		}
	}
	return false
}
