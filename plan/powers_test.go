package plan

import (
	"testing"

	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"
)

func TestForbiddenPowersRefuseThePod(t *testing.T) {
	tests := []struct {
		power     Power
		pod       bool
		asks, not []manifest.Isolator // isolators with the power, and without
	}{
		{PowerPrivileged, false, listed("os/linux/privileged", "true"), listed("os/linux/privileged", "false")},
		{PowerCapabilities, false, listed(retainSet, `{"set": ["CAP_SYS_ADMIN"]}`), listed(retainSet, `{"set": ["CAP_CHOWN"]}`)},
		{PowerCapabilities, false, listed("os/linux/privileged", "true"), listed(removeSet, `{"set": ["CAP_CHOWN"]}`)},
		{PowerSeccomp, false, listed("os/linux/seccomp-retain-set", `{"set": ["@appc.io/all"]}`), nil},
		{PowerSeccomp, false, listed("os/linux/seccomp-remove-set", `{"set": ["reboot"]}`), listed("os/linux/seccomp-remove-set", `{"set": ["@appc.io/empty"]}`)},
		{PowerSeccomp, false, listed("os/linux/privileged", "true"), nil},
		{PowerHostNamespaces, true, listed("os/linux/namespaces", `{"net": "host"}`), listed("os/linux/namespaces", `{}`)},
	}
	for _, test := range tests {
		apply := func(c Config, list []manifest.Isolator) error {
			if test.pod {
				_, err := (Rows{}).applyPodIsolators(c, able, list)
				return err
			}
			_, err := (Rows{}).applyAppIsolators(c, able, podIsolators{}, list)
			return err
		}
		strict := defaultConfig()
		strict.Forbid = []Power{test.power}
		wantError(t, apply(strict, test.asks), "stagerConfig.forbid", string(test.power))
		if err := apply(strict, test.not); err != nil {
			t.Errorf("forbid %s: %v", test.power, err)
		}
		if err := apply(defaultConfig(), test.asks); err != nil {
			t.Errorf("nothing is forbidden: %v", err)
		}
	}
	// Namespaces that the administrator leaves to the host are not the pod's wish.
	c := defaultConfig()
	c.DefaultNamespaces, c.Forbid = nil, []Power{PowerHostNamespaces}
	if _, err := (Rows{}).applyPodIsolators(c, able, listed("os/linux/namespaces", `{}`)); err != nil {
		t.Error(err)
	}
}

func TestProcessesAreLimited(t *testing.T) {
	able := able
	able.PIDLimits = true
	for machine, want := range map[*spec.Support][2]int64{&able: {4096, 16384}, {}: {0, 0}} {
		pod, err := (Rows{}).applyPodIsolators(defaultConfig(), *machine, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int64{settled(t, *machine, pod, nil).Resources.PIDs, pod.Resources.PIDs}; got != want {
			t.Errorf("limits %d, want %d", got, want)
		}
	}
}
