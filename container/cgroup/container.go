package cgroup

import (
	_ "github.com/opencontainers/cgroups/devices" // sets device rules; without it the cgroup manager refuses any
	devices "github.com/opencontainers/cgroups/devices/config"

	"kurma.io/stager/spec"
)

// MakeContainer makes a container's cgroup with its limits and its policy of devices, for a runtime whose program
// does not.
func (g *PodGroup) MakeContainer(s *spec.Spec) error {
	resources := Resources(s.Resources)
	if err := LimitBlockDevices(s.Resources, resources); err != nil {
		return err
	}
	resources.Devices = DeviceRules(s)
	return g.MakeBelow(s.Cgroup, resources)
}

// DeviceRules allow the devices that every container has and the spec's own, and no others; a privileged container may
// use any.
func DeviceRules(s *spec.Spec) []*devices.Rule {
	everything := &devices.Rule{
		Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard,
		Permissions: "rwm", Allow: s.Privileged,
	}
	rules := []*devices.Rule{everything}
	if s.Privileged {
		return rules
	}
	allow := func(kind devices.Type, major, minor int64, access string) {
		rules = append(rules, &devices.Rule{
			Type: kind, Major: major, Minor: minor, Permissions: devices.Permissions(access), Allow: true,
		})
	}
	allow(devices.CharDevice, devices.Wildcard, devices.Wildcard, "m")
	allow(devices.BlockDevice, devices.Wildcard, devices.Wildcard, "m")
	for _, minor := range []int64{3, 5, 7, 8, 9} { // null, zero, full, random, urandom
		allow(devices.CharDevice, 1, minor, "rwm")
	}
	allow(devices.CharDevice, 5, 0, "rwm")                  // tty
	allow(devices.CharDevice, 5, 2, "rwm")                  // ptmx
	allow(devices.CharDevice, 136, devices.Wildcard, "rwm") // terminals
	for _, d := range s.Devices {
		allow(devices.Type(d.Type), d.Major, d.Minor, d.Access)
	}
	return rules
}
