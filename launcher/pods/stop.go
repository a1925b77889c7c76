package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"kurma.io/stager/launcher/cgroups"
)

// Stop stops a pod and returns when everything of it is taken down. Its
// monitor does the work (see Run), so the pod ends even when the caller does not wait; a
// pod without one is cleared away.
func (s *Store) Stop(ctx context.Context, p *Pod) error {
	lock, err := os.OpenFile(filepath.Join(p.Dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("stop pod %q: %w", p.Plan.Name, err)
	}
	defer lock.Close()
	if err := p.askMonitor(ctx); err != nil {
		return fmt.Errorf("stop pod %q: %w", p.Plan.Name, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- waitLock(lock) }()
	select {
	case <-ctx.Done():
		return fmt.Errorf("stop pod %q: %w", p.Plan.Name, context.Cause(ctx))
	case err := <-waited:
		if err != nil {
			return fmt.Errorf("stop pod %q: wait for its monitor: %w", p.Plan.Name, err)
		}
	}
	p.lock = lock
	return s.clear(p)
}

// beforeMonitor is how often askMonitor looks for a monitor that is on its way.
const beforeMonitor = 5 * time.Millisecond

// askMonitor sends SIGTERM to the pod's monitor. Of a pod that has just been
// created nobody knows it yet; it is waited for until it says who it is, or has died.
func (p *Pod) askMonitor(ctx context.Context) error {
	for p.alive() {
		err := p.State.Monitor.signal(syscall.SIGTERM)
		if err == nil || p.State.Monitor.PID != 0 && errors.Is(err, errGone) {
			return nil
		}
		if !errors.Is(err, errGone) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(beforeMonitor):
		}
		if err := p.refresh(); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
	}
	return nil
}

// Collect clears away every pod that has no monitor: dead ones, and what is
// kept of those that have exited. It returns their UUIDs. Pods that live are not
// touched, several Collects may run at once, and one that is killed
// is made good by the next.
func (s *Store) Collect() ([]string, error) {
	orphans, err := s.orphans()
	if err != nil {
		return nil, fmt.Errorf("collect pods: %w", err)
	}
	var done []string
	var errs []error
	for _, p := range orphans {
		if err := s.clear(p); err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, p.Plan.UUID)
	}
	return done, errors.Join(errs...)
}

// orphans takes the locks of all pods without a monitor. The store's lock
// keeps out those who are just making a pod and have not locked it yet.
func (s *Store) orphans() ([]*Pod, error) {
	store, err := s.lockStore()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	uuids, err := s.uuids()
	if err != nil {
		return nil, err
	}
	var orphans []*Pod
	for _, uuid := range uuids {
		dir := filepath.Join(s.dir, uuid)
		lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, err
		}
		if !tryLock(lock) {
			_ = lock.Close()
			continue
		}
		orphans = append(orphans, &Pod{Dir: dir, Plan: Plan{UUID: uuid}, lock: lock})
	}
	return orphans, nil
}

// clear removes all that is left of a pod whose lock the caller has taken.
func (s *Store) clear(p *Pod) error {
	if _, err := os.Stat(p.Dir); errors.Is(err, fs.ErrNotExist) {
		return p.lock.Close() // its monitor did it all
	}
	// A maker that was killed may have written neither, and a power loss may have
	// damaged them; no other pod is to suffer from what they say then.
	var plan Plan
	if readJSON(filepath.Join(p.Dir, planFile), &plan) == nil && plan.UUID == p.Plan.UUID {
		p.Plan = plan
	}
	_ = readJSON(filepath.Join(p.Dir, stateFile), &p.State)
	if p.Plan.Cgroup == "" {
		p.Plan.Cgroup = filepath.Join(s.cgroup, p.Plan.UUID)
	}
	_ = p.State.Stager.signal(syscall.SIGKILL) // it died with its monitor, or is about to
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return fmt.Errorf("clear pod %s: %w", p.Plan.UUID, err)
	}
	return p.takeDown(group, Exit{}, false)
}
