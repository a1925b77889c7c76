package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kurma.io/stager/launcher/pods"
)

// PodFilter selects pods. For each key that is in it, one of the values must be the pod's, and all of those of label.
type PodFilter map[string][]string

// podFilters returns the keys of a PodFilter, each with a function that returns the pod's values.
func podFilters() map[string]func(*pods.Pod) []string {
	return map[string]func(*pods.Pod) []string{
		"name":  func(p *pods.Pod) []string { return []string{p.Plan.Name} },
		"state": func(p *pods.Pod) []string { return []string{string(p.State.Phase)} },
		"app":   AppNames,
		"label": func(p *pods.Pod) []string {
			var all []string
			for key, value := range p.Plan.Labels {
				all = append(all, key, key+"="+value)
			}
			return all
		},
		"network": func(p *pods.Pod) []string {
			var all []string
			for _, c := range p.Connections() {
				all = append(all, c.Name)
			}
			return all
		},
	}
}

// Add adds a condition, KEY=VALUE. Its keys are name, state, app, network and label; the value of label is the key of a
// label, or its KEY=VALUE. A state that no pod can have is an error.
func (f PodFilter) Add(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || podFilters()[key] == nil {
		return errors.New("want name=NAME, state=STATE, app=APP, network=NETWORK or label=KEY[=VALUE]")
	}
	if key == "state" && !slices.Contains(phases(), pods.Phase(value)) {
		return fmt.Errorf("unknown state %q; want one of %v", value, phases())
	}
	f[key] = append(f[key], value)
	return nil
}

func phases() []pods.Phase {
	return []pods.Phase{pods.Starting, pods.Running, pods.Stopping, pods.Exited, pods.Dead, pods.Damaged}
}

// Matches reports whether the filter selects the pod.
func (f PodFilter) Matches(pod *pods.Pod) bool {
	known := podFilters()
	for key, values := range f {
		have, matching := known[key](pod), 0
		for _, value := range values {
			if slices.Contains(have, value) {
				matching++
			}
		}
		if matching == 0 || key == "label" && matching < len(values) {
			return false
		}
	}
	return true
}
