package activation

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/plan"
)

func TestListenEnvReplacesInheritedVariables(t *testing.T) {
	own := []string{"A=1", "LISTEN_FDS=9", "LISTEN_PID=9", "LISTEN_FDNAMES=x"}
	got := ListenEnv(own, []plan.Socket{{Name: "web", Network: "tcp", Port: 80}, {Name: "dns", Network: "udp", Port: 53}})
	if diff := cmp.Diff([]string{"A=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=web:dns"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(own, ListenEnv(own, nil)); diff != "" {
		t.Error(diff)
	}
}
