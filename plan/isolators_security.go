package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"kurma.io/stager/spec"
)

// The isolators that restrict what an app's processes may do (appc, ace.md, Linux
// Isolators), except seccomp.

var errSet = errors.New(`must be an object with a set that is not empty, such as {"set": ["CAP_CHOWN"]}`)

func parseCapabilities(value json.RawMessage) ([]string, error) {
	var v struct{ Set []string }
	if json.Unmarshal(value, &v) != nil || len(v.Set) == 0 {
		return nil, errSet
	}
	return v.Set, nil
}

// retainCapabilities adds a retain-set to the earlier ones: an app keeps the capabilities that
// any of them names, as under rkt. appc's text does not define the result of several; their
// intersection would often be empty.
func (i *applier) retainCapabilities(value json.RawMessage) (verdict, error) {
	set, err := parseCapabilities(value)
	if err != nil {
		return verdict{}, err
	}
	if i.remove != nil {
		return verdict{}, errBothSets
	}
	kept, lost := split(set, i.machine.Capabilities)
	if i.retain != nil {
		kept = append(kept, *i.retain...)
	}
	i.retain = &kept
	if len(lost) > 0 {
		return change("unknown, or the stager does not have it: %s", quoted(lost))
	}
	return verdict{}, nil
}

var errBothSets = errors.New("capabilities-retain-set and capabilities-remove-set must not be used together")

func (i *applier) removeCapabilities(value json.RawMessage) (verdict, error) {
	set, err := parseCapabilities(value)
	if err != nil {
		return verdict{}, err
	}
	if i.retain != nil {
		return verdict{}, errBothSets
	}
	i.remove = append(i.remove, set...)
	// By the specification, removing a capability that is not in the default set has no
	// effect; a name that does not look like a capability is probably misspelt.
	var odd []string
	for _, name := range set {
		if !slices.Contains(spec.DefaultCapabilities(), name) && !slices.Contains(i.machine.Capabilities, name) {
			odd = append(odd, name)
		}
	}
	if odd != nil {
		return change("unknown, so not removed: %s", quoted(odd))
	}
	return verdict{}, nil
}

// split separates names that are in set from names that are not.
func split(names, set []string) (in, out []string) {
	in = []string{}
	for _, name := range names {
		if slices.Contains(set, name) {
			in = append(in, name)
		} else {
			out = append(out, name)
		}
	}
	return in, out
}

// settleCapabilities computes the app's bounding set from the isolators' sets.
func (i *applier) settleCapabilities() {
	var set []string
	switch {
	case i.retain != nil:
		set = *i.retain
	case i.app.Privileged:
		set = slices.Clone(i.machine.Capabilities)
	default:
		set, _ = split(spec.DefaultCapabilities(), i.machine.Capabilities)
	}
	_, set = split(set, i.remove)
	slices.Sort(set)
	i.app.Capabilities = slices.Compact(set)
}

// ambientSet is Kurma's isolator of capabilities that apps of any user have.
const ambientSet = "os/linux/capabilities-ambient-set"

func (i *applier) ambientCapabilities(value json.RawMessage) (verdict, error) {
	set, err := parseCapabilities(value)
	i.ambient = append(i.ambient, set...)
	return verdict{}, err
}

// settleAmbient computes the app's ambient set, when its capabilities are settled.
func (i *applier) settleAmbient() {
	if i.ambient == nil {
		return
	}
	set, lost := split(i.ambient, i.app.Capabilities)
	slices.Sort(set)
	i.app.AmbientCapabilities = slices.Compact(set)
	if len(lost) > 0 {
		modify(i.app.Fates, ambientSet, "the app does not have "+quoted(lost))
	}
}

// noNewPrivileges applies os/linux/no-new-privileges: if one of several is true, the result is.
func (i *applier) noNewPrivileges(value json.RawMessage) (verdict, error) {
	var v bool
	if err := boolean(value, &v); err != nil {
		return verdict{}, err
	}
	if !v && i.app.NoNewPrivileges {
		return change("an earlier one is true")
	}
	i.app.NoNewPrivileges = v
	return verdict{}, nil
}

// privileged applies Kurma's isolator: all capabilities, the machine's devices, nothing hidden in
// /proc and /sys, writable cgroups, and no seccomp filter unless an isolator asks for one.
// CONFIG.md has the table. The fate names what the stager lacks and so cannot grant.
func (i *applier) privileged(value json.RawMessage) (verdict, error) {
	if err := boolean(value, &i.app.Privileged); err != nil {
		return verdict{}, err
	}
	if i.app.Privileged && len(i.machine.Withheld) > 0 {
		return change("the stager lacks, and so cannot grant: %s", strings.Join(i.machine.Withheld, ", "))
	}
	return verdict{}, nil
}

func (i *applier) oomScoreAdj(value json.RawMessage) (verdict, error) {
	var score int
	if err := whole(value, &score, -1000, 1000); err != nil {
		return verdict{}, err
	}
	i.app.OOMScoreAdj = score
	if lowest := i.machine.MinOOMScoreAdj; score < lowest {
		i.app.OOMScoreAdj = lowest
		return change("%d is the lowest that the stager may set", lowest)
	}
	return verdict{}, nil
}

// appArmor reads the profile's name, a string or in an object.
func (i *applier) appArmor(value json.RawMessage) (verdict, error) {
	var v struct{ Name, Profile string }
	if json.Unmarshal(value, &v) != nil && json.Unmarshal(value, &v.Name) != nil {
		v.Name = ""
	}
	if v.Name == "" {
		v.Name = v.Profile
	}
	if v.Name == "" {
		return verdict{}, errors.New(`must be an AppArmor profile's name, such as {"name": "my-profile"}`)
	}
	if !i.machine.AppArmor {
		return ignore("the kernel does not use AppArmor")
	}
	if i.forPod {
		i.pod.AppArmorProfile = v.Name
	}
	i.app.AppArmorProfile = v.Name
	return verdict{}, nil
}

func (i *applier) seLinux(value json.RawMessage) (verdict, error) {
	var v struct{ User, Role, Type, Level string }
	if json.Unmarshal(value, &v) != nil || v.User == "" || v.Role == "" || v.Type == "" || v.Level == "" ||
		strings.Contains(v.User+v.Role+v.Type, ":") {
		return verdict{}, errors.New("must be an object with user, role, type and level, without colons in the first three")
	}
	if !i.machine.SELinux {
		return ignore("the kernel does not use SELinux")
	}
	label := fmt.Sprintf("%s:%s:%s:%s", v.User, v.Role, v.Type, v.Level)
	if i.forPod {
		i.pod.SELinuxLabel = label
	}
	i.app.SELinuxLabel = label
	return verdict{}, nil
}

// sysctl accepts the parameters of the pod's own namespaces; any other parameter would change
// the whole machine.
func (i *applier) sysctl(value json.RawMessage) (verdict, error) {
	var all map[string]string
	if json.Unmarshal(value, &all) != nil || all == nil {
		return verdict{}, errors.New("must be an object of strings")
	}
	i.pod.Sysctl = map[string]string{}
	var refused []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if strings.ContainsRune(all[key], 0) {
			return verdict{}, fmt.Errorf("%q has a NUL character", key)
		}
		if i.pod.Namespaces.ownsSysctl(key) {
			i.pod.Sysctl[key] = all[key]
		} else {
			refused = append(refused, key)
		}
	}
	switch {
	case refused == nil:
		return verdict{}, nil
	case len(i.pod.Sysctl) == 0:
		return ignore("not parameters of the pod's own namespaces: %s", quoted(refused))
	default:
		return change("not parameters of the pod's own namespaces, so not set: %s", quoted(refused))
	}
}

// ownsSysctl reports whether a parameter belongs to one of the pod's own namespaces. It is
// false for a key that could lead to another file.
func (n Namespaces) ownsSysctl(key string) bool {
	if !sysctlKey().MatchString(key) {
		return false
	}
	switch {
	case strings.HasPrefix(key, "net."):
		return !n.HostNet
	case slices.Contains(ipcSysctls(), key) || strings.HasPrefix(key, "fs.mqueue."):
		return !n.HostIPC
	case key == "kernel.hostname" || key == "kernel.domainname":
		return !n.HostUTS
	}
	return false
}

// sysctlKey is compiled on first use, see number.
var sysctlKey = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant, made late
	return regexp.MustCompile(`^[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*$`)
})

// ipcSysctls returns the parameters of an IPC namespace (ipc_namespaces(7)).
func ipcSysctls() []string {
	return []string{
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
		"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	}
}
