package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"
)

// Stop stops a pod and returns when it has ended. The pod's monitor does the
// work (see Run), so the pod ends even if the caller does not wait. A ctx that has ended before stops nothing. Stop
// itself takes down a pod without a monitor. The pod stays in the store, as Run leaves it. The error wraps
// ErrConnected if the pod has ended, but not all of its networks' plugins have disconnected it. Also after an error
// p has the pod's state of that time.
func (s *Store) Stop(ctx context.Context, p *Pod) error {
	lock, err := s.endMonitor(ctx, p)
	if err != nil || lock == nil {
		return err
	}
	if err := p.readState(false); err != nil || p.State.Phase == Exited || p.State.DisconnectError != "" {
		_ = lock.Close()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("stop pod %q: %w", p.Plan.Name, err)
		}
		return p.StillConnected()
	}
	k := s.keep(*p, lock)
	err = s.clear(k, p.ending())
	if p.State = k.State; p.alive() {
		p.State.Phase = Dead
	}
	return err
}

// Kill kills the stager of a pod, and so the pod, which its monitor or attendant takes down. It does nothing to a
// pod that has ended, or is damaged or deleted.
func (s *Store) Kill(uuid string) error {
	p, err := s.read(uuid)
	switch {
	case errors.Is(err, fs.ErrNotExist) || jsonfile.IsDamage(err):
		return nil
	case err != nil:
		return fmt.Errorf("kill pod %s: %w", uuid, err)
	case !p.alive():
		return nil
	}
	if err := p.killStager(); err != nil {
		return fmt.Errorf("kill pod %q: %w", p.Plan.Name, err)
	}
	return nil
}

// killStager kills the stager; of an unattended pod all processes, as only this ends those of a cgroup that is frozen.
func (p *Pod) killStager() error {
	err := p.State.Stager.signal(syscall.SIGKILL)
	if errors.Is(err, errGone) {
		err = nil
	}
	if !p.State.Unattended || err != nil {
		return err
	}
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return err
	}
	return group.Kill()
}

// End kills a pod as Kill does and returns when it has ended, see AwaitEnd.
func (s *Store) End(ctx context.Context, p *Pod) error {
	if err := s.Kill(p.Plan.UUID); err != nil {
		return err
	}
	ctx, cancel := p.withinItsEnd(ctx)
	defer cancel()
	return p.AwaitEnd(ctx)
}

// rest is how long a monitor may take to remove a pod that has ended, beside the calls of plugins.
const rest = 2 * time.Minute

// withinItsEnd returns a context for a wait until the pod's monitor, or another process, has taken the pod down. The
// context ends before only if that process hangs.
func (p *Pod) withinItsEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := p.Plan.StopTimeout + killPatience + time.Duration(len(p.Plan.Networks))*networks.CallTime + rest
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("its monitor or stager, process %d, or another one that takes "+
		"it down has not ended within %s", cmp.Or(p.State.Monitor.PID, p.State.Stager.PID), limit))
}

// ErrEnded says that a pod has ended, so that nothing can be called or signalled in it.
var ErrEnded = errors.New("has ended")

// Remove deletes a pod that has ended, with its logs. A pod that is alive is an error, and one that cannot be
// disconnected from its networks stays, with ErrConnected. With force Remove stops the pod first, and
// deletes it in any case. It kills a damaged pod.
func (s *Store) Remove(ctx context.Context, p *Pod, force bool) error {
	if p.Damage != nil {
		p = &Pod{Dir: p.Dir, Plan: Plan{UUID: p.Plan.UUID}, Damage: p.Damage} // nothing else is sure
		s.recall(p)
	}
	if p.held() {
		return p.heldError()
	}
	if !force && (p.alive() || p.Damage != nil && p.Locked()) {
		return fmt.Errorf("pod %q has not ended; stop it first, or use --force", p.Plan.Name)
	}
	lock, err := s.endMonitor(ctx, p)
	if err != nil || lock == nil {
		return err
	}
	if force {
		return s.clear(s.keep(*p, lock), deleteAnyway)
	}
	return s.clear(s.keep(*p, lock), deletePod)
}

// endMonitor ends the pod's monitor or stager, and so the pod; of a damaged pod the pod first. It returns the pod's
// lock, which it has taken, or nil if the pod is not in the store any more.
func (s *Store) endMonitor(ctx context.Context, p *Pod) (*os.File, error) {
	lock, err := openLock(filepath.Join(p.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has ended meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("stop pod %q: %w", p.Plan.Name, err)
	}
	ctx, cancel := p.withinItsEnd(ctx)
	defer cancel()
	switch err = context.Cause(ctx); {
	case err != nil: // the pod keeps running: a caller that is interrupted may still call this for its next pods
	case p.Damage != nil:
		err = s.endDamaged(ctx, p, lock)
	default:
		err = p.askToEnd(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stop pod %q: %w", p.Plan.Name, err), lock.Close())
	}
	if err := awaitLock(ctx, lock); err != nil {
		return nil, fmt.Errorf("stop pod %q: %w", p.Plan.Name, err)
	}
	return lock, nil
}

// beforeStart is how often askToEnd looks for a monitor or stager that is starting.
const beforeStart = 5 * time.Millisecond

// askToEnd sends SIGTERM to the pod's monitor; of an unattended pod to the stager, for whose end it waits. A pod that
// has just been created may have neither in its state yet: askToEnd waits until it has, or the pod has died.
func (p *Pod) askToEnd(ctx context.Context) error {
	for p.alive() {
		process := p.State.Monitor
		if p.State.Unattended {
			process = p.State.Stager
		}
		err := process.signal(syscall.SIGTERM)
		switch {
		case err == nil && p.State.Unattended:
			return p.endStager(ctx)
		case err == nil || process.PID != 0 && errors.Is(err, errGone):
			return nil
		case !errors.Is(err, errGone):
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(beforeStart):
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

// endStager waits for the end of a stager that was asked to end, and kills the pod after StopTimeout.
func (p *Pod) endStager(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, p.Plan.StopTimeout)
	defer cancel()
	if p.awaitStager(patience) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.killStager()
}

// Collect deletes every pod that has ended: dead pods and exited ones. It returns their UUIDs. A pod
// that cannot be disconnected from its networks stays, with an error. Collect does not touch live pods. Several
// Collects may run at once; if one is killed, or ctx ends, the next does the rest of its work.
func (s *Store) Collect(ctx context.Context) ([]string, error) {
	return s.collect(ctx, deletePod, func(string) bool { return true })
}

// CollectRemains deletes what is left of pods that List does not have: the process that made or deleted them was
// killed. It is as Collect otherwise.
func (s *Store) CollectRemains() error {
	_, err := s.collect(context.Background(), deleteAnyway, func(uuid string) bool {
		_, err := s.read(uuid)
		return errors.Is(err, fs.ErrNotExist)
	})
	return err
}

func (s *Store) collect(ctx context.Context, how ending, wanted func(uuid string) bool) ([]string, error) {
	store, err := s.lockStore() // which makes it, and shows whether it can be changed
	if err != nil {
		return nil, fmt.Errorf("collect pods: %w", err)
	}
	uuids, err := s.uuids()
	if err = errors.Join(err, store.Close()); err != nil {
		return nil, err
	}
	var done []string
	var errs []error
	for _, uuid := range uuids {
		if err := context.Cause(ctx); err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		p, err := s.orphan(uuid)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("collect pods: %w", err))
			continue
		case p == nil:
			continue
		case !wanted(uuid):
			errs = append(errs, p.lock.Close())
			continue
		}
		if err := s.clear(p, how); err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, uuid)
	}
	return done, errors.Join(errs...)
}

// orphan takes a pod's lock. It returns nil if the pod is kept, see Kept, or gone. The store's lock keeps away
// processes that have made a pod's folder and not yet its lock.
func (s *Store) orphan(uuid string) (*Keeper, error) {
	store, err := s.lockStore()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	dir := filepath.Join(s.dir, uuid)
	p := Pod{Dir: dir}
	for _, name := range []string{lockFile, heldFile, shownFile} { // see Kept
		if held, err := p.lookAt(name); held || err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, lockFile)
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	// Whoever removes a pod removes the lock last, and then the folder, in which a new lock would be in the way.
	if errors.Is(err, fs.ErrNotExist) && os.Remove(dir) != nil {
		lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // a maker or remover was killed
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // deleted meanwhile
	}
	if err != nil {
		return nil, err
	}
	if locked, err := filelock.Hold(lock); err != nil || !locked {
		return nil, errors.Join(err, lock.Close())
	}
	err = p.readState(false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !jsonfile.IsDamage(err) || err == nil && p.alive() { // unattended
		return nil, errors.Join(err, lock.Close())
	}
	return s.keep(Pod{Dir: dir, Plan: Plan{UUID: uuid}}, lock), nil
}

// keep returns the keeper of a pod; the caller has taken its lock.
func (s *Store) keep(p Pod, lock *os.File) *Keeper {
	return &Keeper{Pod: p, lock: lock, connector: s.Connector}
}

// clear takes down a pod as how says, and releases its lock.
func (s *Store) clear(k *Keeper, how ending) error {
	defer k.lock.Close()
	if !exists(k.Dir) {
		return nil // its monitor did it all
	}
	s.recall(&k.Pod)
	_ = jsonfile.Read(filepath.Join(k.Dir, stateFile), &k.State)
	err := k.State.Stager.signal(syscall.SIGKILL) // it died with its monitor, or is about to
	if errors.Is(err, errGone) {
		err = nil
	}
	group, openErr := cgroups.Open(k.Plan.Cgroup)
	if err := errors.Join(err, openErr); err != nil {
		return fmt.Errorf("clear pod %s: %w", k.Plan.UUID, err)
	}
	return k.takeDown(group, k.findOOM(k.unseen(), group), how)
}

// killed is the Exit of a stager that was killed.
func killed() Exit { return Exit{Code: 128 + int(syscall.SIGKILL), Signal: "SIGKILL"} }
