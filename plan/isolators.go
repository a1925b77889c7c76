package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"
)

// IsolatorFate reports whether one isolator is enforced, changed or ignored (appc, ace.md,
// Isolators: an executor must report it). The stager logs it, and "status --isolators"
// prints it.
type IsolatorFate struct {
	Name string `json:"name"`
	Fate Fate   `json:"fate"`
	Why  string `json:"why,omitempty"` // "" only if it is enforced as written
}

// Fate reports whether an isolator is enforced, changed or ignored.
type Fate string

// The fates, as status --isolators prints them.
const (
	Enforced Fate = "enforced"
	Modified Fate = "modified" // enforced, but not as written
	Ignored  Fate = "ignored"

	// Undecided is the fate of a product's isolator where the product does not decide: for the launcher's validate.
	Undecided Fate = "undecided"
)

// podIsolators is the result of the pod's isolators.
type podIsolators struct {
	Namespaces      Namespaces
	Resources       spec.Resources    // of the pod's cgroup, the parent of its apps'
	Sysctl          map[string]string // to set in the pod's namespaces, by dotted name
	SELinuxLabel    string
	AppArmorProfile string
	Fates           []IsolatorFate

	NetworkBandwidth uint64 // bytes a second, of each interface and direction; 0 for no limit
	OneApp           bool   // the pod has one app, so the pod's network is the app's

	Own effects // by the product's rows
}

// appIsolators is the result of an app's isolators.
type appIsolators struct {
	Capabilities        []string // names, sorted
	AmbientCapabilities []string // of Capabilities, sorted; nil for none
	NoNewPrivileges     bool
	Privileged          bool
	Seccomp             spec.Seccomp
	OOMScoreAdj         int
	AppArmorProfile     string
	SELinuxLabel        string
	Resources           spec.Resources
	Fates               []IsolatorFate

	NetworkBandwidth uint64 // of the whole pod, see podIsolators

	Own effects // by the product's rows
}

// applier applies the isolators of one pod or app, and holds the result.
type applier struct {
	table   []isolator
	config  Config
	machine spec.Support
	targets []string     // of the mounts that the manifest lists for the app, or for all apps
	pod     podIsolators // the pod's result, unfinished while forPod
	app     appIsolators // the app's result

	retain       *[]string // the capabilities to keep, nil for the default set
	remove       []string  // the capabilities to remove from it
	ambient      []string  // the capabilities that the ambient set is to have
	shares       uint64    // os/linux/cpu-shares, which overrides the request of resource/cpu
	cpuRequested bool      // resource/cpu has a request
	filtered     bool      // there is a seccomp isolator
	chosen       bool      // the seccomp isolator selects a filter
	forPod       bool
	decided      effects // by the product's rows
}

// resources returns the resources that a resource isolator limits: the pod's or the app's.
func (i *applier) resources() *spec.Resources {
	if i.forPod {
		return &i.pod.Resources
	}
	return &i.app.Resources
}

// isolator is a row of the table: what an isolator does.
type isolator struct {
	name     string
	pod, app bool // where it applies; elsewhere it is ignored
	repeat   repetition

	// apply reads the value and changes the result. An error refuses the pod, and says what
	// the value must be.
	apply func(*applier, json.RawMessage) (verdict, error)
}

// repetition says what several isolators of one name mean.
type repetition int

const (
	onlyOnce repetition = iota // a second one is an error
	lastWins                   // the specification allows several, and does not define the result
	addUp
)

// verdict is a fate and the reason for it; the zero value means enforced as written.
type verdict struct {
	fate Fate
	why  string
}

func change(format string, args ...any) (verdict, error) {
	return verdict{Modified, fmt.Sprintf(format, args...)}, nil
}

func ignore(format string, args ...any) (verdict, error) {
	return verdict{Ignored, fmt.Sprintf(format, args...)}, nil
}

// isolators is the table. To add an isolator, add a row.
func isolators() []isolator {
	return []isolator{
		{name: "os/linux/capabilities-retain-set", app: true, repeat: addUp, apply: (*applier).retainCapabilities},
		{name: "os/linux/capabilities-remove-set", app: true, repeat: addUp, apply: (*applier).removeCapabilities},
		{name: ambientSet, app: true, repeat: addUp, apply: (*applier).ambientCapabilities},
		{name: "os/linux/no-new-privileges", app: true, repeat: addUp, apply: (*applier).noNewPrivileges},
		{name: "os/linux/seccomp-retain-set", app: true, apply: seccomp(filterToRetain)},
		{name: "os/linux/seccomp-remove-set", app: true, apply: seccomp(filterToRemove)},
		{name: "os/linux/oom-score-adj", app: true, apply: (*applier).oomScoreAdj},
		{name: "os/linux/cpu-shares", app: true, apply: (*applier).cpuShares},
		{name: "os/linux/apparmor-profile", app: true, pod: true, apply: (*applier).appArmor},
		{name: "os/linux/selinux-context", app: true, pod: true, apply: (*applier).seLinux},
		{name: "os/linux/privileged", app: true, apply: (*applier).privileged},
		{name: "os/linux/namespaces", pod: true, apply: (*applier).namespaces},
		{name: "os/unix/sysctl", pod: true, apply: (*applier).sysctl},
		{name: "resource/cpu", app: true, pod: true, repeat: lastWins, apply: (*applier).cpu},
		{name: "resource/memory", app: true, pod: true, repeat: lastWins, apply: (*applier).memory},
		{name: "resource/block-bandwidth", app: true, pod: true, repeat: lastWins, apply: blockLimit(blockBandwidthOf)},
		{name: "resource/block-iops", app: true, pod: true, repeat: lastWins, apply: blockLimit(blockIOPSOf)},
		{name: "resource/network-bandwidth", app: true, pod: true, repeat: lastWins, apply: (*applier).networkBandwidth},
		{name: "host/privileged", app: true, pod: true, apply: preparedAt("/host")},
		{name: "host/api-access", app: true, pod: true, apply: preparedAt("/var/lib/kurma")},
	}
}

// applyPodIsolators applies the pod's isolators. targets are its apps' mount targets. An
// error names the isolator and its value.
func (r Rows) applyPodIsolators(
	c Config, m spec.Support, list []manifest.Isolator, targets ...string,
) (podIsolators, error) {
	i := applier{table: r.isolators(), config: c, machine: m, targets: targets, forPod: true}
	var err error
	if i.pod.Namespaces, err = namespacesOf(c, list); err != nil {
		return podIsolators{}, err
	}
	fates, err := i.applyAll(list)
	if err != nil {
		return podIsolators{}, err
	}
	i.pod.Fates, i.pod.Own = fates, i.decided
	if m.PIDLimits {
		i.pod.Resources.PIDs = c.MaxProcesses.Pod
	}
	return i.pod, nil
}

// applyAppIsolators applies an app's isolators within the limits of the pod's. targets are
// those of the app's mounts.
func (r Rows) applyAppIsolators(
	c Config, m spec.Support, pod podIsolators, list []manifest.Isolator, targets ...string,
) (appIsolators, error) {
	i := applier{table: r.isolators(), config: c, machine: m, pod: pod, targets: targets}
	i.app.AppArmorProfile, i.app.SELinuxLabel = pod.AppArmorProfile, pod.SELinuxLabel
	i.app.OOMScoreAdj = max(0, m.MinOOMScoreAdj) // 0 rather than the stager's own, if the stager may set it
	fates, err := i.applyAll(list)
	if err != nil {
		return appIsolators{}, err
	}
	if i.shares != 0 {
		if i.cpuRequested {
			modify(fates, "resource/cpu", "os/linux/cpu-shares overrides its request")
		}
		i.app.Resources.CPUShares = i.shares
	}
	i.app.Fates, i.app.Own = fates, i.decided
	i.inheritBlockLimits()
	i.settleCapabilities()
	i.settleAmbient()
	if i.app.Privileged && !i.chosen {
		i.app.Seccomp.Kind = spec.SeccompOff
	}
	if m.PIDLimits {
		i.app.Resources.PIDs = c.MaxProcesses.App
	}
	return i.app, i.checkPowers()
}

// checkPowers refuses what stagerConfig.forbid lists.
func (i *applier) checkPowers() error {
	_, beyond := split(i.app.Capabilities, spec.DefaultCapabilities())
	switch {
	case i.app.Privileged && i.config.forbids(PowerPrivileged):
		return forbidden("os/linux/privileged", PowerPrivileged)
	case len(beyond) > 0 && i.config.forbids(PowerCapabilities):
		return fmt.Errorf("%w: %s are beyond the default set",
			forbidden("os/linux/capabilities-retain-set", PowerCapabilities), quoted(beyond))
	case i.app.Seccomp.Kind != spec.SeccompDefault && i.config.forbids(PowerSeccomp):
		return forbidden("a seccomp filter other than the default", PowerSeccomp)
	}
	return nil
}

func forbidden(what string, power Power) error {
	return fmt.Errorf("%s: stagerConfig.forbid has %q", what, power)
}

func (c *Config) forbids(power Power) bool { return slices.Contains(c.Forbid, power) }

// applyAll applies isolators in order.
func (i *applier) applyAll(list []manifest.Isolator) ([]IsolatorFate, error) {
	var fates []IsolatorFate
	for n, written := range list {
		v, err := i.applyOne(written, list[:n], list[n+1:])
		if err != nil {
			return nil, fmt.Errorf("isolator %s: %s: %w", written.Name, showValue(written.Value), err)
		}
		if v.fate == "" {
			v.fate = Enforced
		}
		if v.fate == Ignored && i.config.StrictIsolators {
			return nil, fmt.Errorf("isolator %q would be ignored, which stagerConfig.strictIsolators forbids: %s",
				written.Name, v.why)
		}
		fates = append(fates, IsolatorFate{Name: written.Name, Fate: v.fate, Why: v.why})
	}
	return fates, nil
}

// modify records that another isolator has changed the named one, if that was enforced as
// written.
func modify(fates []IsolatorFate, name, why string) {
	for n := range fates {
		if f := &fates[n]; f.Name == name && f.Fate == Enforced {
			f.Fate, f.Why = Modified, why
		}
	}
}

func (i *applier) applyOne(written manifest.Isolator, before, after []manifest.Isolator) (verdict, error) {
	n := slices.IndexFunc(i.table, func(row isolator) bool { return row.name == written.Name })
	if n < 0 {
		return ignore("this stager does not know the isolator")
	}
	row := i.table[n]
	switch {
	case i.forPod && !row.pod:
		return ignore("only apps have this isolator, not the pod")
	case !i.forPod && !row.app:
		return ignore("only the pod has this isolator, not its apps")
	}
	if len(written.Value) == 0 || string(written.Value) == "null" {
		return verdict{}, errors.New("value is missing")
	}
	same := func(other manifest.Isolator) bool { return other.Name == row.name }
	if row.repeat == onlyOnce && slices.ContainsFunc(before, same) {
		return verdict{}, errors.New("given twice")
	}
	v, err := row.apply(i, written.Value)
	if err == nil && row.repeat == lastWins && slices.ContainsFunc(after, same) {
		return ignore("a later isolator of the same name overrides it")
	}
	return v, err
}

// namespacesOf decides the namespaces. It is called before the other isolators are applied:
// the namespaces decide which sysctls are allowed.
func namespacesOf(c Config, list []manifest.Isolator) (Namespaces, error) {
	var value json.RawMessage
	for _, written := range list {
		if written.Name == "os/linux/namespaces" {
			value = written.Value
		}
	}
	asked, err := hostNamespaces(c, value)
	if err != nil {
		return Namespaces{}, fmt.Errorf("isolator os/linux/namespaces: %s: %w", showValue(value), err)
	}
	if asked != (Namespaces{}) && c.forbids(PowerHostNamespaces) {
		return Namespaces{}, forbidden("os/linux/namespaces", PowerHostNamespaces)
	}
	return asked.or(c), nil
}

// namespaces has nothing left to do: namespacesOf has decided.
func (i *applier) namespaces(json.RawMessage) (verdict, error) { return verdict{}, nil }

// preparedAt is for an isolator that the daemon enforces before the stager runs, by mounts at
// or below dir.
func preparedAt(dir string) func(*applier, json.RawMessage) (verdict, error) {
	return func(i *applier, value json.RawMessage) (verdict, error) {
		var wanted bool
		if err := boolean(value, &wanted); err != nil || !wanted {
			return verdict{}, err
		}
		if !slices.ContainsFunc(i.targets, func(target string) bool { return target == dir || spec.Inside(target, dir) }) {
			return ignore("the daemon has mounted nothing at %s", dir)
		}
		return verdict{Enforced, "by the daemon's mounts at " + dir}, nil
	}
}
