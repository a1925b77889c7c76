package main

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/coreos/go-iptables/iptables"
)

// A pod's rules go, with their comments, and those of others stay.
func TestSweepRemovesThePodsRulesAlone(t *testing.T) {
	newNetwork(t)
	for _, args := range [][]string{
		{"-N", "CNI-pod"},
		{"-A", "POSTROUTING", "-s", "10.1.0.3/32", "-j", "MASQUERADE"},
		{"-A", "POSTROUTING", "-s", "10.1.0.2/32", "-m", "comment", "--comment", `name: "kurma" id: "pod"`, "-j", "CNI-pod"},
		{"-A", "POSTROUTING", "-s", "10.1.0.2/32", "-m", "comment", "--comment", `name: "kurma" id: "pod"`, "-j", "CNI-pod"},
		{"-A", "CNI-pod", "-j", "MASQUERADE"},
	} {
		if out, err := exec.Command("iptables", append([]string{"-t", "nat"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := sweepChain(iptables.ProtocolIPv4, "CNI-pod"); err != nil {
		t.Fatal(err)
	}
	tables, err := iptables.New()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := tables.List("nat", "POSTROUTING")
	if want := []string{"-P POSTROUTING ACCEPT", "-A POSTROUTING -s 10.1.0.3/32 -j MASQUERADE"}; err != nil || !slices.Equal(rules, want) {
		t.Errorf("%q, %v, want %q", rules, err, want)
	}
	if exists, err := tables.ChainExists("nat", "CNI-pod"); err != nil || exists {
		t.Errorf("the pod's chain is there: %t, %v", exists, err)
	}
}
