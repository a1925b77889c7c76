package daemon

import "kurma.io/stager/spec"

// ExitPolicies returns the names of the policies that say when a pod ends by itself, for podplan.Options.ExitPolicy.
func ExitPolicies() []string { return namesOf(spec.ExitPolicies()) }

// RestartPolicies returns the names of the policies that say whether an app is restarted, for podplan.Options.Restart.
func RestartPolicies() []string { return namesOf(spec.RestartPolicies()) }

func namesOf[Policy any](all []spec.NamedPolicy[Policy]) []string {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}
