package main

import (
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"kurma.io/stager/spec"
)

// seccompOf turns a process's filter into OCI's JSON, nil for none.
func seccompOf(p *spec.Process) (*specs.LinuxSeccomp, error) {
	switch p.Seccomp.Kind {
	case spec.SeccompOff:
		return nil, nil //nolint:nilnil // no filter is a filter here
	case spec.SeccompSet:
		return setOf(p.Seccomp.Set), nil
	}
	bounded := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: p.Capabilities}}}
	if p.Seccomp.Kind == spec.SeccompProfile {
		return seccomp.LoadProfile(p.Seccomp.Profile, bounded)
	}
	return seccomp.GetDefaultProfile(bounded)
}

// setOf turns an isolator's set into a filter for every ABI of the machine.
func setOf(set spec.SyscallSet) *specs.LinuxSeccomp {
	blocked, allowed := specs.ActKillProcess, specs.ActAllow
	var errno *uint
	if set.Errno != 0 {
		blocked, errno = specs.ActErrno, new(uint(set.Errno))
	}
	filter := &specs.LinuxSeccomp{
		DefaultAction: allowed,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
	}
	rule := specs.LinuxSyscall{Names: set.Names(), Action: blocked, ErrnoRet: errno}
	if set.Retain {
		filter.DefaultAction, filter.DefaultErrnoRet = blocked, errno
		rule.Action, rule.ErrnoRet = allowed, nil
	}
	if len(rule.Names) > 0 {
		filter.Syscalls = []specs.LinuxSyscall{rule}
	}
	return filter
}
