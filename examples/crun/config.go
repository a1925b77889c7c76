package main

import (
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// configOf turns the spec into an OCI configuration. It decides and changes nothing. The
// namespaces that are not named are the caller's, which are the pod's; a privileged container also has the caller's
// cgroup namespace.
func configOf(s *spec.Spec, user [2]uint32, shm string, stdio spec.Stdio) (*specs.Spec, error) {
	filter, err := seccompOf(&s.Process)
	if err != nil {
		return nil, err
	}
	config := &specs.Spec{
		Version: "1.0.2",
		Process: processOf(s, user, stdio),
		Root:    &specs.Root{Path: s.Root, Readonly: s.ReadOnlyRoot},
		Mounts:  append(systemMounts(s, shm), mountsOf(s)...),
		Linux: &specs.Linux{
			Namespaces:        []specs.LinuxNamespace{{Type: specs.MountNamespace}},
			RootfsPropagation: "rslave",
			Seccomp:           filter,
		},
	}
	if !s.Privileged {
		config.Linux.Namespaces = append(config.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
		config.Linux.MaskedPaths, config.Linux.ReadonlyPaths = spec.MaskedPaths(), spec.ReadOnlyPaths()
	}
	return config, nil
}

// processOf is a process in the container: its main process, or a command with the
// main process's rights.
func processOf(s *spec.Spec, user [2]uint32, stdio spec.Stdio) *specs.Process {
	p, oom := &s.Process, s.OOMScoreAdj
	out := &specs.Process{
		Terminal: stdio.Terminal,
		User:     specs.User{UID: user[0], GID: user[1]},
		Args:     p.Args, Env: p.Env, Cwd: p.Dir,
		Capabilities:    &specs.LinuxCapabilities{Bounding: p.Capabilities},
		NoNewPrivileges: p.NoNewPrivileges,
		ApparmorProfile: s.AppArmorProfile,
		OOMScoreAdj:     &oom,
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
	if user[0] == 0 {
		out.Capabilities.Permitted, out.Capabilities.Effective = p.Capabilities, p.Capabilities
	}
	return out
}

// limitAtMost is a number as a limit, soft and hard, or the caller's own limit where that is lower.
func limitAtMost(name string, resource int, most uint64) specs.POSIXRlimit {
	var own unix.Rlimit
	if unix.Getrlimit(resource, &own) != nil {
		own = unix.Rlimit{Cur: most, Max: most}
	}
	return specs.POSIXRlimit{Type: name, Soft: min(own.Cur, most), Hard: min(own.Max, most)}
}

// systemMounts are the file systems that appc's Linux environment has (OS-SPEC.md), before
// the app's own mounts.
func systemMounts(s *spec.Spec, shm string) []specs.Mount {
	safe := []string{"nosuid", "noexec", "nodev"}
	proc, sys := safe, append([]string{"ro"}, safe...)
	if s.HideProcesses || slices.Contains(s.Process.Capabilities, "CAP_PERFMON") {
		proc = append([]string{"hidepid=ptraceable"}, safe...)
	}
	if s.Privileged {
		sys = safe
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: proc},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "bind", Source: shm, Options: append([]string{"bind"}, safe...)},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: safe},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: sys},
	}
	if s.Privileged {
		// The mounts of sysfs in a network namespace share a superblock, which is read-only if the first of them is: the
		// daemon's is, or an app's.
		mounts = append(mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append([]string{"remount"}, safe...)})
	}
	return mounts
}

func mountsOf(s *spec.Spec) []specs.Mount {
	var out []specs.Mount
	for _, m := range s.Mounts {
		out = append(out, specs.Mount{Destination: path.Clean(m.Target), Type: m.Type, Source: m.Source, Options: mountOptions(m)})
	}
	return out
}

func mountOptions(m spec.Mount) []string {
	var options []string
	switch {
	case m.Type == "bind" && m.Recursive:
		options = []string{"rbind", "rslave"}
	case m.Type == "bind":
		options = []string{"bind", "slave"}
	}
	bind := m.Type == "bind"
	for flag, set := range map[string]bool{"ro": m.ReadOnly, "nosuid": m.NoSuid, "nodev": m.NoDev} {
		switch {
		case set && bind:
			options = append(options, "r"+flag) // without the r, crun would take away the flags of the source
		case set:
			options = append(options, flag)
		}
	}
	if m.Options != "" {
		options = append(options, strings.Split(m.Options, ",")...)
	}
	return options
}
