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

// The isolators that say what an app's processes may do (appc, ace.md, Linux
// Isolators), but for seccomp.

var errSet = errors.New(`must be an object with a set that is not empty, such as {"set": ["CAP_CHOWN"]}`)

func parseCapabilities(value json.RawMessage) ([]string, error) {
	var v struct{ Set []string }
	if json.Unmarshal(value, &v) != nil || len(v.Set) == 0 {
		return nil, errSet
	}
	return v.Set, nil
}

// retainCapabilities adds a retain-set to those before it: an app keeps what any of them names,
// as under rkt. appc's text does not say what several mean; their intersection would often be
// empty.
func (i *isolation) retainCapabilities(value json.RawMessage) (verdict, error) {
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
	return withoutUngivable(lost)
}

var errBothSets = errors.New("capabilities-retain-set and capabilities-remove-set must not be used together")

func (i *isolation) removeCapabilities(value json.RawMessage) (verdict, error) {
	set, err := parseCapabilities(value)
	if err != nil {
		return verdict{}, err
	}
	if i.retain != nil {
		return verdict{}, errBothSets
	}
	i.remove = append(i.remove, set...)
	// One that is not in the default set has no effect, by the specification;
	// a name that looks like none is more likely misspelt.
	var odd []string
	for _, name := range set {
		if !slices.Contains(spec.DefaultCapabilities(), name) && !slices.Contains(i.machine.Capabilities, name) {
			odd = append(odd, name)
		}
	}
	if odd != nil {
		return change("not known here, so not removed: %s", quoted(odd))
	}
	return verdict{}, nil
}

func withoutUngivable(lost []string) (verdict, error) {
	if len(lost) == 0 {
		return verdict{}, nil
	}
	return change("not known here or not the stager's to give: %s", quoted(lost))
}

// split parts names into those that are in set and those that are not.
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

// settleCapabilities makes the app's bounding set of what the isolators said.
func (i *isolation) settleCapabilities() {
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

// noNewPrivileges: one that is true is enough.
func (i *isolation) noNewPrivileges(value json.RawMessage) (verdict, error) {
	v, err := parseBool(value)
	if err != nil {
		return verdict{}, err
	}
	if !v && i.app.NoNewPrivileges {
		return change("an earlier one is true")
	}
	i.app.NoNewPrivileges = v
	return verdict{}, nil
}

// privileged is Kurma's: all capabilities, the machine's devices, nothing hidden in /proc and
// /sys, writable cgroups, and no seccomp filter but one that is asked for. CONFIG.md has the
// table. The fate names what the stager does not have to give.
func (i *isolation) privileged(value json.RawMessage) (verdict, error) {
	wanted, err := parseBool(value)
	if err != nil {
		return verdict{}, err
	}
	i.app.Privileged = wanted
	if wanted && len(i.machine.Withheld) > 0 {
		return change("the stager does not have, and so cannot give: %s", strings.Join(i.machine.Withheld, ", "))
	}
	return verdict{}, nil
}

func (i *isolation) oomScoreAdj(value json.RawMessage) (verdict, error) {
	var score int
	if json.Unmarshal(value, &score) != nil || score < -1000 || score > 1000 {
		return verdict{}, errors.New("must be a whole number from -1000 to 1000")
	}
	i.app.OOMScoreAdj = score
	if lowest := i.machine.MinOOMScoreAdj; score < lowest {
		i.app.OOMScoreAdj = lowest
		return change("%d is the lowest that the stager may set", lowest)
	}
	return verdict{}, nil
}

// appArmor takes the profile's name, as a string or in an object.
func (i *isolation) appArmor(value json.RawMessage) (verdict, error) {
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

func (i *isolation) seLinux(value json.RawMessage) (verdict, error) {
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

// sysctl takes the parameters that belong to the pod's own namespaces; any
// other would be the whole machine's.
func (i *isolation) sysctl(value json.RawMessage) (verdict, error) {
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
		return ignore("not of a namespace of the pod's own: %s", quoted(refused))
	default:
		return change("not of a namespace of the pod's own, so left out: %s", quoted(refused))
	}
}

// ownsSysctl says whether the parameter belongs to a namespace that the pod
// has of its own. A key that could name another file than it says is refused.
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

// sysctlKey is compiled late, see number.
var sysctlKey = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant, made late
	return regexp.MustCompile(`^[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*$`)
})

// ipcSysctls are those of an IPC namespace (ipc_namespaces(7)).
func ipcSysctls() []string {
	return []string{
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
		"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	}
}
