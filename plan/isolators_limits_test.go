package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

const blockBandwidth = "resource/block-bandwidth"

func rate(limit int) string { return fmt.Sprintf(`{"default": true, "limit": "%d"}`, limit) }

func TestBlockLimitsFollowTheMachine(t *testing.T) {
	clause.Covers(t, "C-BLK-01")
	tests := []struct {
		name           string
		limits         spec.BlockLimits
		pod, app       []manifest.Isolator
		want           spec.Resources // the app's
		podFate, fates []Fate
	}{
		{"v2", spec.FullBlockLimits, nil, listed(blockBandwidth, rate(5)), spec.Resources{BlockBandwidth: 5}, nil, []Fate{Enforced}},
		{"v1", spec.DirectBlockLimits, nil, listed(blockBandwidth, rate(5)), spec.Resources{BlockBandwidth: 5}, nil, []Fate{Modified}},
		{"none", spec.NoBlockLimits, listed(blockBandwidth, rate(5)), listed(blockBandwidth, rate(5)), spec.Resources{}, []Fate{Ignored}, []Fate{Ignored}},
		{"the pod's bounds the app's", spec.FullBlockLimits, listed(blockBandwidth, rate(5)), listed(blockBandwidth, rate(6)), spec.Resources{BlockBandwidth: 5}, []Fate{Enforced}, []Fate{Modified}},
		{"the app's below the pod's", spec.FullBlockLimits, listed(blockBandwidth, rate(6)), listed(blockBandwidth, rate(5)), spec.Resources{BlockBandwidth: 5}, []Fate{Enforced}, []Fate{Enforced}},
		{"the pod's is an app's that has none", spec.DirectBlockLimits, listed(blockBandwidth, rate(5)), nil, spec.Resources{BlockBandwidth: 5}, []Fate{Modified}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := spec.Support{BlockLimits: test.limits}
			pod, err := (Rows{}).applyPodIsolators(defaultConfig(), m, test.pod)
			if err != nil {
				t.Fatal(err)
			}
			checkFates(t, test.podFate, pod.Fates)
			got := settled(t, m, pod, test.app)
			checkFates(t, test.fates, got.Fates)
			if diff := cmp.Diff(test.want, got.Resources); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNetworkLimitIsOfThePodOrItsOnlyApp(t *testing.T) {
	clause.Covers(t, "C-NBW-01")
	isolator := func(limit int) []manifest.Isolator { return listed("resource/network-bandwidth", rate(limit)) }
	tests := []struct {
		name string
		pod  podIsolators
		list []manifest.Isolator
		want uint64
		fate Fate
	}{
		{"only app", podIsolators{OneApp: true}, isolator(5000), 5000, Enforced},
		{"one of several", podIsolators{}, isolator(5000), 0, Ignored},
		{"host's network", podIsolators{OneApp: true, Namespaces: Namespaces{HostNet: true}}, isolator(5000), 0, Ignored},
		{"less than the kernel takes", podIsolators{OneApp: true}, isolator(5), minNetworkRate, Modified},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := settled(t, able, test.pod, test.list)
			checkFates(t, []Fate{test.fate}, got.Fates)
			if got.NetworkBandwidth != test.want {
				t.Errorf("limit %d, want %d", got.NetworkBandwidth, test.want)
			}
		})
	}
	pod, err := (Rows{}).applyPodIsolators(defaultConfig(), able, isolator(5000))
	if err != nil || pod.NetworkBandwidth != 5000 {
		t.Errorf("pod's limit %d, %v", pod.NetworkBandwidth, err)
	}
	checkFates(t, []Fate{Enforced}, pod.Fates)
	pod, err = (Rows{}).applyPodIsolators(defaultConfig(), able, append(listed("os/linux/namespaces", `{"net": "host"}`), isolator(5000)...))
	if err != nil || pod.NetworkBandwidth != 0 {
		t.Errorf("limit %d of the host's network, %v", pod.NetworkBandwidth, err)
	}
}
