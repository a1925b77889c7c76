// Package plan decides how a pod runs before the stager does anything for the pod. Its input is
// the Stager Manifest and what the machine can enforce; its output is plain data. It changes
// nothing, so its tests need no root, and another stager can use its decisions unchanged.
package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"
)

// Pod is the plan of a pod. It is data that nobody changes after Decide: what the stager finds out later, such as the
// URL of the metadata service, is a value of whoever finds it out.
type Pod struct {
	Name     string
	Hostname string // to set in the pod's UTS namespace; "" for none, or if the pod shares the host's
	Config   Config

	Namespaces Namespaces

	UserNamespace *spec.UserNamespace // that of all apps, which the stager makes; nil for the stager's own

	Resources spec.Resources    // of the pod's cgroup, the parent of its apps'
	Sysctl    map[string]string // to set in the pod's namespaces, by dotted name

	// NetworkBandwidth limits each of the pod's interfaces except loopback, in bytes a second,
	// in each direction; 0 for no limit.
	NetworkBandwidth uint64

	OOMScoreAdj int // the supervisor's: the lowest that the machine allows

	Fates    []IsolatorFate // of the pod's isolators
	Apps     []App          // in the pod's order
	Warnings []string       // about the pod, for the log

	Metadata Metadata // without the UUID

	Values map[string]any // of the product's isolators and annotations of the pod, see Rows
}

// Decide plans the pod of m, which it validates. machine is what the runtime supports, drivers are the
// names of the union file systems. An error is one line that names the field, app, isolator, volume or port that Decide
// refuses. image is the configuration in the stager's image, nil for none: it has the defaults of the keys that the
// manifest's stagerConfig lacks.
func Decide(m *manifest.Manifest, machine spec.Support, drivers []string, image json.RawMessage) (*Pod, error) {
	return Rows{}.Decide(m, machine, drivers, image)
}

// Decide plans the pod as the function Decide does, and by the product's rows.
func (r Rows) Decide(
	m *manifest.Manifest, machine spec.Support, drivers []string, image json.RawMessage,
) (*Pod, error) {
	if err := cmp.Or(r.Check(), m.Validate()); err != nil {
		return nil, err
	}
	config, configured, unknown, err := r.configure(m, drivers, image)
	if err != nil {
		return nil, err
	}
	if err := CheckMounts(m); err != nil {
		return nil, err
	}
	apps := m.Apps()
	if config.Log.Path != "" && len(apps) > 1 {
		return nil, fmt.Errorf("stagerConfig.log.path: %q: one file is the log of one app, and the pod has %d",
			config.Log.Path, len(apps))
	}
	isolators, err := r.isolatePod(m, apps, config, machine)
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	pod := &Pod{
		Name: m.Name, Config: config,
		Namespaces: isolators.Namespaces, Resources: isolators.Resources, Sysctl: isolators.Sysctl,
		NetworkBandwidth: isolators.NetworkBandwidth, OOMScoreAdj: machine.MinOOMScoreAdj, Fates: isolators.Fates,
		Warnings: configWarnings(config, unknown), Metadata: metadataOf(m, apps), Values: isolators.Own.Values,
	}
	isolators.Own.Changes = slices.Concat(configured.Changes, isolators.Own.Changes)
	if !machine.PIDLimits && config.MaxProcesses != (MaxProcesses{}) {
		pod.Warnings = append(pod.Warnings,
			"stagerConfig.maxProcesses has no effect: the machine's cgroups have no pids controller")
	}
	if m.KurmaVersion == "" {
		pod.Warnings = append(pod.Warnings,
			"the manifest has no kurmaVersion, which the Kurma Stager Specification asks for; nothing depends on it")
	}
	if pod.Hostname, err = hostname(m, pod.Namespaces); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	machine.Hostname = cmp.Or(pod.Hostname, machine.Hostname) // the apps'
	if err := checkVolumeNames(m.Pod); err != nil {
		return nil, err
	}
	warnings, err := checkPortNames(apps, m.Pod.Ports)
	if err != nil {
		return nil, err
	}
	pod.Warnings = append(pod.Warnings, warnings...)
	for _, app := range apps {
		if err := pod.add(r, m, app, machine, isolators); err != nil {
			return nil, fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	return pod, pod.separateUsers(machine)
}

// isolatePod applies the isolators of the pod, and reads its annotations of the product.
func (r Rows) isolatePod(
	m *manifest.Manifest, apps []manifest.App, c Config, machine spec.Support,
) (podIsolators, error) {
	var targets []string
	for _, app := range apps {
		targets = append(targets, targetsOf(app)...)
	}
	isolators, err := r.applyPodIsolators(c, machine, m.Pod.Isolators, targets...)
	if err != nil {
		return podIsolators{}, err
	}
	isolators.OneApp = len(m.Pod.Apps) == 1
	return isolators, r.annotate(m.Pod.Annotations, true, &isolators.Own)
}

func configWarnings(c Config, unknown []string) []string {
	var warnings []string
	for _, key := range unknown {
		warnings = append(warnings, "unknown key, ignored: "+key)
	}
	if slices.Contains(c.RequiredNamespaces, "user") && c.UserNamespace.HostID == 0 {
		warnings = append(warnings,
			"stagerConfig.requiredNamespaces has no effect for user: a pod has the stager's without stagerConfig.userNamespace")
	}
	return warnings
}

func (p *Pod) add(r Rows, m *manifest.Manifest, app manifest.App, machine spec.Support, isolators podIsolators) error {
	plan, err := r.planApp(app, p.Config, machine, isolators, m.Pod.Volumes)
	if err != nil {
		return err
	}
	if plan.Sockets, err = socketsOf(app, m.Pod.Ports); err != nil {
		return err
	}
	layers, warnings, err := layersOf(app.Layers, m.Images)
	if err != nil {
		return err
	}
	plan.Layers, plan.Warnings = layers, append(plan.Warnings, warnings...)
	p.NetworkBandwidth = least(p.NetworkBandwidth, plan.networkBandwidth)
	p.Apps = append(p.Apps, plan)
	return nil
}

// CommandEnv returns the environment of a command that the call-in run executes in the app, beside the variables of the
// command's settings: the app's, without TERM if the app has it for its own terminal only. WithMetadata adds the URL of
// the metadata service.
func (p *Pod) CommandEnv(app string) []string {
	var variables []string
	if n := slices.IndexFunc(p.Apps, func(a App) bool { return a.Name == app }); n >= 0 {
		variables = p.Apps[n].variables
	}
	return commandEnv(variables)
}

// commandEnv returns the environment of a command in an app with these variables.
func commandEnv(variables []string) []string {
	return firstOfEachName(variables, []string{"PATH=" + defaultPath})
}

// Isolators returns the fates of an app's isolators and the pod's, as status --isolators
// prints them. It returns false if the pod does not have the app.
func (p *Pod) Isolators(app string) (Fates, bool) {
	n := slices.IndexFunc(p.Apps, func(a App) bool { return a.Name == app })
	if n < 0 {
		return Fates{}, false
	}
	return Fates{Pod: p.Fates, App: p.Apps[n].Fates}, true
}

// Fates are the fates of all isolators that an app is subject to.
type Fates struct {
	Pod, App []IsolatorFate
}

// Degraded returns the fates for a stager that could not enforce an isolator as planned: its fate is Modified for the
// pod and the app, unless it is Ignored.
func (f Fates) Degraded(isolator, why string) Fates {
	degraded := func(list []IsolatorFate) []IsolatorFate {
		list = slices.Clone(list)
		for i := range list {
			if f := &list[i]; f.Name == isolator && f.Fate != Ignored {
				f.Fate, f.Why = Modified, why
			}
		}
		return list
	}
	return Fates{Pod: degraded(f.Pod), App: degraded(f.App)}
}

// MarshalJSON implements json.Marshaler. An empty list is [], not null.
func (f Fates) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string][]IsolatorFate{
		"pod": append([]IsolatorFate{}, f.Pod...),
		"app": append([]IsolatorFate{}, f.App...),
	})
}
