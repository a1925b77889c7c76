package cgroup

import (
	"testing"

	"github.com/opencontainers/cgroups"
)

// strangers is a cgroup of version 2 with processes of another PID namespace, which it lists as 0.
type strangers struct{ cgroups.Manager }

func (strangers) GetAllPids() ([]int, error) { return []int{0, 0}, nil }

// kill(2) takes 0 for the caller's own process group: a mistake ends this test's program.
func TestProcessesOfOtherNamespacesAreCountedAndNotSignalled(t *testing.T) {
	if left, err := SignalAll(strangers{}); left != 2 || err != nil {
		t.Errorf("%d processes are left, %v; want 2", left, err)
	}
}
