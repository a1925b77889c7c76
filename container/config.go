package container

import (
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

const noSuidExecDev = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

// configOf turns the spec into libcontainer's configuration. It decides and
// touches nothing. shm is the pod's directory for POSIX shared memory.
//
// The namespaces that are not named here are the caller's own: the supervisor
// runs in the pod's PID, IPC, UTS and network namespaces, and so do its children.
func configOf(s *spec.Spec, shm string) *configs.Config {
	oom := s.OOMScoreAdj
	c := &configs.Config{
		Rootfs:          s.Root,
		Readonlyfs:      s.ReadOnlyRoot,
		RootPropagation: unix.MS_SLAVE | unix.MS_REC, // of all mounts, before any is made
		Namespaces:      configs.Namespaces{{Type: configs.NEWNS}},
		Cgroups:         &cgroups.Cgroup{Path: s.Cgroup, Resources: cgroup.Resources(s.Resources)},
		Capabilities:    shimCapabilities(s.Process.Capabilities),
		OomScoreAdj:     &oom,
		ProcessLabel:    s.SELinuxLabel,
		Version:         "1.0.0",
	}
	c.Mounts = append(systemMounts(s, shm), mountsOf(s)...)
	for _, d := range specconv.AllowedDevices {
		if d.Path != "" {
			c.Devices = append(c.Devices, d)
		}
	}
	c.Cgroups.Devices = deviceRules(s)
	if !s.Privileged {
		c.MaskPaths, c.ReadonlyPaths = spec.MaskedPaths(), spec.ReadOnlyPaths()
	}
	return c
}

// console is /dev/console of a container without a terminal: the device is
// there, and nobody may open it. libcontainer puts a terminal in its place, and
// fails where the device is.
func console() *devices.Device {
	return &devices.Device{
		Path: "/dev/console", FileMode: 0o620, Rule: devices.Rule{Type: devices.CharDevice, Major: 5, Minor: 1},
	}
}

// shimCapabilities is the bounding set of the shim, which needs a few beyond
// the app's to make itself the app.
func shimCapabilities(app []string) *configs.Capabilities {
	need := []string{"CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
	set := append(need, app...)
	return &configs.Capabilities{Bounding: set, Permitted: set, Effective: set}
}

// systemMounts are the file systems that appc's Linux environment has
// (OS-SPEC.md), before the app's own mounts.
func systemMounts(s *spec.Spec, shm string) []*configs.Mount {
	sysFlags := noSuidExecDev | unix.MS_RDONLY
	if s.Privileged {
		sysFlags = noSuidExecDev
	}
	procOptions := ""
	if slices.Contains(s.Process.Capabilities, "CAP_PERFMON") {
		// It opens environ, maps and auxv of any process that is to be seen there,
		// whatever a Landlock domain says (mm_access in kernel/fork.c). So others
		// are not to be seen (proc(5), hidepid).
		procOptions = "hidepid=ptraceable"
	}
	return []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: noSuidExecDev, Data: procOptions},
		{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_STRICTATIME, Data: "mode=755,size=64k"},
		{Source: "devpts", Destination: "/dev/pts", Device: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Data: "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{Source: shm, Destination: "/dev/shm", Device: "bind", Flags: unix.MS_BIND | noSuidExecDev},
		{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: noSuidExecDev},
		{Source: "sysfs", Destination: "/sys", Device: "sysfs", Flags: sysFlags},
		cgroupMount(s.Privileged),
	}
}

// cgroupMount is the caller's /sys/fs/cgroup in the container, all hierarchies in one recursive
// bind: libcontainer's own mount of type "cgroup" binds each hierarchy alone, which costs 2 ms of every
// start. It is read-only but for a privileged container.
func cgroupMount(privileged bool) *configs.Mount {
	return mountOf(spec.Mount{Source: names.CgroupDir, Target: "/sys/fs/cgroup", Type: "bind", Recursive: true, ReadOnly: !privileged})
}

func mountsOf(s *spec.Spec) []*configs.Mount {
	var out []*configs.Mount
	for _, m := range s.Mounts {
		out = append(out, mountOf(m))
	}
	return out
}

// mountOf turns a mount into libcontainer's. A bind's propagation is the root's (configOf): what the
// daemon mounts into a volume later comes in, and nothing goes out.
func mountOf(m spec.Mount) *configs.Mount {
	c := &configs.Mount{Source: m.Source, Destination: m.Target, Device: m.Type, Data: m.Options}
	if m.Type == "bind" {
		c.Flags = unix.MS_BIND
		if m.Recursive {
			c.Flags |= unix.MS_REC
		}
	}
	if m.ReadOnly {
		c.Flags |= unix.MS_RDONLY
		if m.Recursive {
			c.RecAttr = &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		}
	}
	return c
}

// deviceRules allow the default devices and the spec's own, and nothing else;
// a privileged container may use any.
func deviceRules(s *spec.Spec) []*devices.Rule {
	everything := devices.Rule{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}
	if s.Privileged {
		everything.Allow = true
		return []*devices.Rule{&everything}
	}
	rules := []*devices.Rule{&everything}
	for _, d := range specconv.AllowedDevices {
		rules = append(rules, &d.Rule)
	}
	for _, d := range s.Devices {
		rules = append(rules, &devices.Rule{
			Type: devices.Type(d.Type), Major: d.Major, Minor: d.Minor,
			Permissions: devices.Permissions(strings.ToLower(d.Access)), Allow: true,
		})
	}
	return rules
}
