package main

import (
	"fmt"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// configOf turns the spec into an OCI configuration. It decides and changes nothing. pod returns the path of a namespace
// of the pod, or "" for the caller's. The namespaces that are not named are the caller's; a privileged container has the
// caller's cgroup namespace.
func configOf(s *spec.Spec, user [2]uint32, shm string, stdio spec.Stdio, pod func(name string) string) (*specs.Spec, error) {
	filter, err := seccompOf(&s.Process)
	if err != nil {
		return nil, fmt.Errorf("make seccomp filter: %w", err)
	}
	config := &specs.Spec{
		Version: "1.0.2",
		Process: processOf(s, user, stdio),
		Root:    &specs.Root{Path: s.Root, Readonly: s.ReadOnlyRoot},
		Mounts:  mountsOf(s, shm),
		Linux: &specs.Linux{
			Namespaces:        namespacesOf(s, pod),
			RootfsPropagation: "rslave",
			Seccomp:           filter,
		},
	}
	if !s.Privileged {
		config.Linux.MaskedPaths, config.Linux.ReadonlyPaths = s.Masked(), s.ReadOnly()
	}
	return config, nil
}

func namespacesOf(s *spec.Spec, pod func(name string) string) []specs.LinuxNamespace {
	all := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if !s.Privileged {
		all = append(all, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	if s.OwnPIDs {
		all = append(all, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	for name, kind := range map[string]specs.LinuxNamespaceType{"ipc": specs.IPCNamespace, "uts": specs.UTSNamespace, "pid": specs.PIDNamespace} {
		if path := pod(name); path != "" && (kind != specs.PIDNamespace || !s.OwnPIDs) {
			all = append(all, specs.LinuxNamespace{Type: kind, Path: path})
		}
	}
	return all
}

// processOf is a process in the container: its main process, or a command with the
// main process's rights.
func processOf(s *spec.Spec, user [2]uint32, stdio spec.Stdio) *specs.Process {
	p := &s.Process
	out := &specs.Process{
		Terminal: stdio.Terminal,
		User:     specs.User{UID: user[0], GID: user[1]},
		Args:     p.Args, Env: p.Env, Cwd: p.Dir,
		Capabilities:    &specs.LinuxCapabilities{Bounding: p.Capabilities},
		NoNewPrivileges: p.NoNewPrivileges,
		ApparmorProfile: s.AppArmorProfile,
		OOMScoreAdj:     new(s.OOMScoreAdj),
		SelinuxLabel:    s.SELinuxLabel,
		Rlimits: []specs.POSIXRlimit{
			limitAtMost("RLIMIT_SIGPENDING", unix.RLIMIT_SIGPENDING, spec.PendingSignals),
			limitAtMost("RLIMIT_MSGQUEUE", unix.RLIMIT_MSGQUEUE, spec.MessageQueueBytes),
		},
	}
	if out.Cwd == "" {
		out.Cwd = "/"
	}
	if stdio.Terminal {
		out.ConsoleSize = &specs.Box{Width: uint(stdio.Width), Height: uint(stdio.Height)}
	}
	for _, gid := range p.SupplementaryGID {
		out.User.AdditionalGids = append(out.User.AdditionalGids, uint32(gid))
	}
	ambient := p.AmbientCapabilities
	out.Capabilities.Inheritable, out.Capabilities.Ambient = ambient, ambient
	out.Capabilities.Permitted, out.Capabilities.Effective = ambient, ambient
	if user[0] == 0 {
		out.Capabilities.Permitted, out.Capabilities.Effective = p.Capabilities, p.Capabilities
	}
	return out
}

// limitAtMost is a number as a limit, soft and hard, or the caller's own limit where that is lower.
func limitAtMost(name string, resource int, most uint64) specs.POSIXRlimit {
	var own unix.Rlimit
	_ = unix.Getrlimit(resource, &own) // it fails for no resource that the kernel has
	return specs.POSIXRlimit{Type: name, Soft: min(own.Cur, most), Hard: min(own.Max, most)}
}

// mountsOf are the file systems that every container has, and then the app's own mounts.
func mountsOf(s *spec.Spec, shm string) []specs.Mount {
	var out []specs.Mount
	for _, m := range spec.SystemMounts(s, shm) {
		out = append(out, specs.Mount{Destination: m.Target, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	for _, m := range s.Mounts {
		out = append(out, specs.Mount{Destination: path.Clean(m.Target), Type: "bind", Source: m.Source, Options: mountOptions(m)})
	}
	return out
}

func mountOptions(m spec.Mount) []string {
	options := []string{"bind", "slave"}
	if m.Recursive {
		options = []string{"rbind", "rslave"}
	}
	for flag, set := range map[string]bool{"ro": m.ReadOnly, "nosuid": m.NoSuid, "nodev": m.NoDev} {
		if set {
			options = append(options, "r"+flag) // without the r, crun would take away the flags of the source
		}
	}
	return options
}
