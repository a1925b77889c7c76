// Package machine finds out what a runtime that uses this machine's kernel can enforce. It needs
// neither cgo nor a runtime's library.
package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// Support returns what a runtime (spec.Runtime) can enforce if it loads seccomp filters and
// applies AppArmor profiles and SELinux labels. A feature that Support cannot detect counts as
// absent.
func Support() spec.Support {
	enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	_, selinux := os.Stat("/sys/fs/selinux/enforce")
	_, users := os.Stat("/proc/self/ns/user")
	hostname, _ := os.Hostname()
	m := spec.Support{
		Hostname: hostname,

		Seccomp: true, UserNamespaces: users == nil,

		AppArmor: bytes.HasPrefix(enabled, []byte("Y")), SELinux: selinux == nil, MinOOMScoreAdj: -1000,
		CPULimits:      controlledAt(names.CgroupDir, "cpu.shares", "cpu"),
		MemoryLimits:   controlledAt(names.CgroupDir, "memory.limit_in_bytes", "memory"),
		MemoryRequests: controlledAt(names.CgroupDir, "memory.soft_limit_in_bytes", ""),
		PIDLimits:      pidLimitsAt(names.CgroupDir),
		BlockLimits:    blockLimitsAt(names.CgroupDir),
	}
	own, err := capability.NewPid2(0)
	if err != nil || own.Load() != nil {
		return m
	}
	for _, c := range capability.ListKnown() {
		if own.Get(capability.PERMITTED, c) && own.Get(capability.BOUNDING, c) {
			m.Capabilities = append(m.Capabilities, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	m.Withheld = withheld(m.Capabilities, names.CgroupDir)
	if !own.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE) {
		m.MinOOMScoreAdj = lowestOOMScoreAdj()
	}
	return m
}

// withheld names what a privileged container lacks: capabilities that the kernel has and the caller
// lacks, device nodes if the caller lacks CAP_MKNOD, and cgroups if none is mounted.
func withheld(have []string, cgroupDir string) []string {
	var lacks []string
	supported, _ := capability.ListSupported() // an error means that the list is empty
	for _, c := range supported {
		if name := "CAP_" + strings.ToUpper(c.String()); !slices.Contains(have, name) {
			lacks = append(lacks, name)
		}
	}
	if !slices.Contains(have, "CAP_MKNOD") {
		lacks = append(lacks, "the machine's devices in /dev")
	}
	if entries, err := os.ReadDir(cgroupDir); err != nil || len(entries) == 0 {
		lacks = append(lacks, "/sys/fs/cgroup")
	}
	return lacks
}

// lowestOOMScoreAdj returns the lowest value for a process without CAP_SYS_RESOURCE: the lowest
// that a process with that capability has set for it. The kernel does not show that value
// (oom_score_adj_min in fs/proc/base.c), so lowestOOMScoreAdj tries values.
func lowestOOMScoreAdj() int {
	const path = "/proc/self/oom_score_adj"
	text, _ := os.ReadFile(path)
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	const lowest = -1000
	refused := sort.Search(own-lowest, func(below int) bool {
		return os.WriteFile(path, []byte(strconv.Itoa(own-below-1)), 0) != nil
	})
	_ = os.WriteFile(path, text, 0) // raising it is always allowed
	return own - refused
}

// blockLimitsAt looks at the mounted cgroup file systems.
func blockLimitsAt(dir string) spec.BlockLimits {
	if _, err := os.Stat(filepath.Join(dir, "blkio", "blkio.throttle.read_bps_device")); err == nil {
		return spec.DirectBlockLimits
	}
	if controlledAt(dir, "", "io") {
		return spec.FullBlockLimits
	}
	return spec.NoBlockLimits
}

// pidLimitsAt reports whether cgroups can limit tasks. The root of a version 1 hierarchy has no pids.max, but
// the cgroups below it do.
func pidLimitsAt(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "pids/cgroup.procs"))
	return err == nil || controlledAt(dir, "pids.max", "pids")
}

// controlledAt reports whether the mounted cgroup file systems have a controller. A controller of
// version 1, which may share its folder with others, has the file; version 2 lists the controller.
func controlledAt(dir, file, controller string) bool {
	if file != "" {
		folders, _ := os.ReadDir(dir)
		// filepath.Glob would read each folder, which takes half a millisecond of every start.
		if slices.ContainsFunc(folders, func(f os.DirEntry) bool {
			_, err := os.Lstat(filepath.Join(dir, f.Name(), file))
			return err == nil
		}) {
			return true
		}
	}
	controllers, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(controllers)), controller)
}
