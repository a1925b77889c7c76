package tests

import (
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// After a crash of its launcher a pod is started again, with its port and its address: the dead pod, whose rules would
// come first, is disconnected before. It keeps its logs.
func TestThePodThatFollowsADeadOneHasItsPortAndAddress(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend)+"]")
			world := m.withWorld()
			const asked, address = "bridge:ips=10.88.0.77", "10.88.0.77"
			var dead *harness.Pod
			for _, start := range []struct{ text, network string }{{"first", "bridge"}, {"second", asked}, {"third", asked}} {
				p := m.connect("p", netPodDoc{harness.PodOf(server("s", start.text)), []map[string]any{published("web", "tcp", 18080, 8080, 1)}}, start.network)
				answers(t, start.text+" 203.0.113.1", func() string { return world.fetch("203.0.113.2", 18080) })
				if got := m.networksOf(p)[0].address(false); start.network == asked && got != address {
					t.Errorf("address %s, want %s", got, address)
				}
				if dead != nil {
					if info := m.ended(dead.UUID); info.State != "exited" || info.DisconnectError != "" {
						t.Errorf("the dead pod: %+v", info)
					}
					if out := m.Must("logs", "--stager", dead.UUID); !strings.Contains(out, "app=s") {
						t.Errorf("the dead pod's log: %q", out)
					}
				}
				m.kill("p")
				dead = p
			}
		})
	}
}
