package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/jsonfile"
)

// ErrDamaged says that a pod's plan or state cannot be read.
var ErrDamaged = errors.New("damaged")

const (
	// killAgain is how often the processes of a damaged pod are killed: the pod may be starting.
	killAgain = 50 * time.Millisecond
	// noProcesses is how long the cgroup of a damaged pod may have no processes while the pod has a monitor, at
	// its start and at its end.
	noProcesses = 30 * time.Second
)

// recall reads what a damaged pod's plan says. If its maker was killed, the pod may have no plan, and a
// power loss may have damaged it: a plan that is not this pod's must not delete another one.
func (s *Store) recall(p *Pod) {
	var plan Plan
	if jsonfile.Read(filepath.Join(p.Dir, planFile), &plan) == nil && plan.UUID == p.Plan.UUID {
		p.Plan = plan
	}
	if p.Plan.Cgroup == "" {
		p.Plan.Cgroup = filepath.Join(s.cgroup, p.Plan.UUID)
	}
}

// endDamaged ends a damaged pod. The state does not say who its monitor is: endDamaged kills the processes in
// the pod's cgroup, and the monitor takes the pod down. It takes the pod's lock.
func (s *Store) endDamaged(ctx context.Context, p *Pod, lock *os.File) error {
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return err
	}
	seen := time.Now()
	for {
		if locked, err := filelock.Hold(lock); err != nil || locked {
			return err
		}
		pids, err := group.PIDs()
		if err == nil && len(pids) > 0 {
			seen = time.Now()
			err = group.Kill()
		}
		if err != nil {
			return err
		}
		if time.Since(seen) > noProcesses {
			return fmt.Errorf("a monitor runs, but no process is in cgroup %s", p.Plan.Cgroup)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(killAgain):
		}
	}
}
