package main

import (
	"fmt"
	"strings"

	"github.com/moby/sys/capability"

	"kurma.io/stager/manifest"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// Memory of a guest, in MiB.
const (
	ownMemory     = 256  // of the kernel, the supervisor and the page cache
	defaultMemory = 1024 // if an app has no limit
)

// maxForwards bounds the ports that are forwarded: a pod can name ranges of thousands.
const maxForwards = 512

// decideMachine decides what machine a pod gets.
func decideMachine(m *manifest.Manifest, pod *plan.Pod, cpus int) (machineConfig, error) {
	c := machineConfig{Share: guestRoot, Memory: memoryOf(pod), CPUs: cpus}
	seen := make(map[forward]bool)
	for _, app := range m.Apps() {
		for _, port := range app.App.Ports {
			for i := range max(port.Count, 1) {
				f := forward{port.Protocol, port.Port + i}
				if f.Protocol != "tcp" && f.Protocol != "udp" {
					return c, fmt.Errorf("app %q: port %q: protocol %q cannot be forwarded", app.Name, port.Name, f.Protocol)
				}
				if seen[f] {
					continue
				}
				if seen[f] = true; len(seen) > maxForwards {
					return c, fmt.Errorf("the apps have more than %d ports, which is more than can be forwarded", maxForwards)
				}
				c.Forward = append(c.Forward, f)
			}
		}
	}
	return c, nil
}

// memoryOf returns the memory of the pod's machine in MiB: what the pod, or else each
// app, is limited to, and the guest's own.
func memoryOf(pod *plan.Pod) int {
	var sum int64
	for _, app := range pod.Apps {
		if app.Spec.Resources.MemoryLimit == 0 {
			sum = 0
			break
		}
		sum += app.Spec.Resources.MemoryLimit
	}
	if pod.Resources.MemoryLimit > 0 {
		sum = pod.Resources.MemoryLimit
	}
	if sum == 0 {
		return defaultMemory
	}
	return ownMemory + int((sum+1<<20-1)>>20)
}

// guestSupport says what the image's kernel and the guest's runtime support, for the
// plan outside. The guest asks its runtime itself, and plans by that.
func guestSupport() spec.Support {
	var all []string
	for _, c := range capability.ListKnown() {
		all = append(all, "CAP_"+strings.ToUpper(c.String()))
	}
	return spec.Support{
		AppArmor: true, Seccomp: true, Capabilities: all, MinOOMScoreAdj: -1000,
		CPULimits: true, MemoryLimits: true, BlockLimits: spec.FullBlockLimits,
	}
}
