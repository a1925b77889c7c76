package spec

import "time"

// RestartPolicy says after which ends the supervisor starts an app again. The zero value is never.
type RestartPolicy struct {
	AfterSuccess bool // after exit code 0
	AfterFailure bool // after any other end
}

// ExitPolicy says when the pod ends by itself. The zero value is never: it stays until it is stopped.
type ExitPolicy struct {
	WhenAllEnded bool // when every app has ended for good, with the first non-zero exit code, else 0
	AtFailure    bool // when the first app has ended for good with a non-zero exit code, with that code
}

// NamedPolicy is a policy and the name that users know it by.
type NamedPolicy[Policy any] struct {
	Name   string
	Policy Policy
}

// RestartPolicies returns the restart policies that have a name.
func RestartPolicies() []NamedPolicy[RestartPolicy] {
	return []NamedPolicy[RestartPolicy]{
		{"never", RestartPolicy{}},
		{"on-failure", RestartPolicy{AfterFailure: true}},
		{"always", RestartPolicy{AfterFailure: true, AfterSuccess: true}},
	}
}

// ExitPolicies returns the exit policies that have a name.
func ExitPolicies() []NamedPolicy[ExitPolicy] {
	return []NamedPolicy[ExitPolicy]{
		{"never", ExitPolicy{}},
		{"all", ExitPolicy{WhenAllEnded: true}},
		{"failure", ExitPolicy{WhenAllEnded: true, AtFailure: true}},
	}
}

// HealthCheck is a command that says whether an app works: it exits with 0, or else has failed.
type HealthCheck struct {
	Command Command

	Interval    time.Duration // from the end of a check to the next
	Timeout     time.Duration // of one check, which has failed then
	Retries     int           // failures in a row that make the app unhealthy, at least 1
	StartPeriod time.Duration // from the app's start, in which failures before the first success do not count

	Restart bool // the app when it becomes unhealthy
	Ready   bool // the app is not ready before its first success
}
