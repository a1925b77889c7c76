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
	"kurma.io/stager/spec"
)

const noSuidExecDev = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

// configOf converts the spec to libcontainer's configuration. It only decides, and changes
// nothing. shm is the pod's directory for POSIX shared memory.
//
// The container shares the namespaces that are not listed here with the caller, the network namespace among them;
// container.configure adds those of init. A privileged container also shares the cgroup namespace: it manages the
// cgroups that the caller has. The shim makes that of another one (SHIM_NEW_CGROUPS in shim.h).
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
	}
	c.Mounts = systemMounts(s, shm)
	for _, m := range s.Mounts {
		c.Mounts = append(c.Mounts, mountOf(m))
	}
	if slices.ContainsFunc(c.Mounts, goesOut) {
		// As a slave, the mount that is bound would be none of the caller's any more. The others are made slaves one by one.
		c.RootPropagation = unix.MS_SHARED | unix.MS_REC
	}
	c.Devices = append(c.Devices, specconv.AllowedDevices...) // one without a path is a rule of the policy alone
	c.Cgroups.Devices = cgroup.DeviceRules(s)
	c.MaskPaths, c.ReadonlyPaths = s.Masked(), s.ReadOnly()
	return c
}

// console returns /dev/console of a container without a terminal: the device exists, and no
// process may open it. For a container with a terminal, libcontainer makes its own console, and
// fails if the device exists.
func console() *devices.Device {
	return &devices.Device{
		Path: "/dev/console", FileMode: 0o620, Rule: devices.Rule{Type: devices.CharDevice, Major: 5, Minor: 1},
	}
}

// shimCapabilities returns the bounding set of the shim, which needs more capabilities than the
// app to become the app.
func shimCapabilities(app []string) *configs.Capabilities {
	need := []string{"CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
	set := append(need, app...)
	return &configs.Capabilities{Bounding: set, Permitted: set, Effective: set}
}

// systemMounts converts the file systems that every container has to libcontainer's mounts.
func systemMounts(s *spec.Spec, shm string) []*configs.Mount {
	flags := map[string]int{
		"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC, "nodev": unix.MS_NODEV,
		"strictatime": unix.MS_STRICTATIME, "bind": unix.MS_BIND, "remount": unix.MS_REMOUNT,
	}
	var out []*configs.Mount
	for _, m := range spec.SystemMounts(s, shm) {
		c := &configs.Mount{Source: m.Source, Destination: m.Target, Device: m.Type}
		var data []string
		for _, option := range m.Options {
			if flag, ok := flags[option]; ok {
				c.Flags |= flag
			} else {
				data = append(data, option)
			}
		}
		c.Data = strings.Join(data, ",")
		out = append(out, c)
	}
	return out
}

func goesOut(m *configs.Mount) bool {
	return slices.Contains(m.PropagationFlags, unix.MS_SHARED|unix.MS_REC)
}

// mountOf converts a mount to libcontainer's.
func mountOf(m spec.Mount) *configs.Mount {
	c := &configs.Mount{
		Source: m.Source, Destination: m.Target, Device: "bind", Flags: unix.MS_BIND,
		PropagationFlags: []int{propagationOf(m) | unix.MS_REC},
	}
	if m.Recursive {
		c.Flags |= unix.MS_REC
	}
	if attributes := attributesOf(m); attributes != 0 {
		// Flags would take away those that the source is mounted with: the daemon's nosuid, for example.
		c.RecAttr = &unix.MountAttr{Attr_set: attributes}
	}
	return c
}

func propagationOf(m spec.Mount) int {
	switch {
	case attributesOf(m) != 0 || m.Propagation == spec.Apart:
		// A later mount in the source would come in without the attributes, which only what is
		// there now gets (mount_setattr(2)).
		return unix.MS_PRIVATE
	case m.Propagation == spec.BothWays:
		return unix.MS_SHARED
	}
	return unix.MS_SLAVE
}

// attributesOf returns the attributes that restrict a bind, as in mount_setattr(2).
func attributesOf(m spec.Mount) (attributes uint64) {
	if m.ReadOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoSuid {
		attributes |= unix.MOUNT_ATTR_NOSUID
	}
	if m.NoDev {
		attributes |= unix.MOUNT_ATTR_NODEV
	}
	return attributes
}
