package daemon

import "kurma.io/stager/supervisor"

// ExitPolicies returns the names of the policies that say when a pod ends by itself, for podplan.Options.ExitPolicy.
func ExitPolicies() []string { return namesOf(supervisor.ExitPolicies()) }

// RestartPolicies returns the names of the policies that say whether an app is restarted, for podplan.Options.Restart.
func RestartPolicies() []string { return namesOf(supervisor.RestartPolicies()) }

func namesOf[Policy any](all []supervisor.Named[Policy]) []string {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}
