package daemon

import (
	"testing"

	"kurma.io/stager/launcher/pods"
)

func TestThePodOfAServiceIsItsUnits(t *testing.T) {
	t.Parallel()
	for want, plan := range map[string]pods.Plan{
		"kurma-pod@web.service": {Cgroup: `system.slice/system-kurma\x2dpod.slice/kurma-pod@web.service/UUID`},
		"":                      {Cgroup: "kurma/UUID"},
	} {
		if unit := serviceOf(plan); unit != want {
			t.Errorf("%s: %q, want %q", plan.Cgroup, unit, want)
		}
	}
	given := pods.Plan{Cgroup: "a.service/UUID", CgroupParent: "a.service"}
	if unit := serviceOf(given); unit != "" {
		t.Errorf("a given parent: %q", unit)
	}
}
