package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/names"
)

// Run launches the pod that Create has made. The calling process is the pod's monitor:
// Run returns when the stager has ended and the pod's processes, mounts, cgroups,
// namespaces and root are gone. It calls ready once, when the stager has closed its ready
// descriptor; an error of ready stops the pod. When ctx ends, Run sends SIGTERM to the
// stager, and SIGKILL if it does not end in time.
//
// A stager that ends before it is ready is an error, which has the last line of its log;
// the pod is deleted then. If keep is set, plan, state and logs of a pod that was up stay;
// otherwise the pod's folder is also deleted.
func (k *Keeper) Run(ctx context.Context, keep bool, ready func() error) (Exit, error) {
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err != nil {
		return Exit{}, errors.Join(fmt.Errorf("launch pod %q: %w", k.Plan.Name, err), k.removeDir())
	}
	apps := k.recordApps()
	exit, err := k.run(ctx, group, func() error {
		apps.up()
		return ready()
	})
	err = k.failed(apps.finish(), err)
	end := deletePod
	if (keep || k.held()) && err == nil {
		end = keepLogs
	}
	return exit, errors.Join(err, k.takeDown(group, exit, end))
}

func (k *Keeper) run(ctx context.Context, group *cgroups.Group, ready func() error) (Exit, error) {
	self, err := identify(os.Getpid())
	if err != nil {
		return Exit{}, err
	}
	k.State.Monitor = self
	s, exit, err := k.bringUp(ctx, group, ready)
	if s == nil {
		return exit, err
	}
	select {
	case exit := <-s.exited:
		return k.findOOM(exit, group), nil
	case <-ctx.Done():
		return k.stop(s, group, nil)
	}
}

// monitorSuffix is what the name of the monitor's cgroup has after that of the pod's.
const monitorSuffix = ".monitor"

// enterMonitorCgroup moves this process into the monitor's cgroup, if the plan has one.
func (k *Keeper) enterMonitorCgroup() error {
	if !k.Plan.MonitorCgroup {
		return nil
	}
	group, err := cgroups.Open(k.Plan.Cgroup + monitorSuffix)
	if err != nil {
		return err
	}
	if err := group.Make(); err != nil {
		return err
	}
	k.leave, err = group.EnterProcess()
	return err
}

// removeMonitorCgroup removes the monitor's cgroup, and moves this process out of it before.
func (k *Keeper) removeMonitorCgroup() error {
	if !k.Plan.MonitorCgroup {
		return nil
	}
	group, err := cgroups.Open(k.Plan.Cgroup + monitorSuffix)
	if err != nil {
		return err
	}
	if k.leave != nil {
		if err := k.leave(); err != nil {
			return fmt.Errorf("leave cgroup of the monitor: %w", err)
		}
		k.leave = nil
	}
	return group.Remove()
}

// stop stops a pod as Kurma does: it sends SIGTERM to the stager, and SIGKILL to all processes of the pod if the stager
// does not end in time or cannot be signalled. It returns why beside its own errors.
func (k *Keeper) stop(s *stager, group *cgroups.Group, why error) (Exit, error) {
	k.State.Phase = Stopping
	_ = k.save() // it is for those who look only
	if err := s.signal(syscall.SIGTERM); err != nil {
		exit, killed := s.kill(group)
		return exit, errors.Join(why, err, killed)
	}
	late := time.NewTimer(k.Plan.StopTimeout)
	defer late.Stop()
	select {
	case exit := <-s.exited:
		return k.findOOM(exit, group), why
	case <-late.C:
	}
	exit, err := s.kill(group)
	return exit, errors.Join(why, err)
}

// outOfMemory says why the kernel has killed a stager.
const outOfMemory = "the kernel killed it because memory was used up"

// findOOM returns how a stager has ended whose exit is given, while its group is still there. If the kernel has
// killed one of the stager's own processes because memory was used up, that is the end, whatever the exit status.
// A stager that has gone on after such a kill has written the apps' last states.
func (k *Keeper) findOOM(exit Exit, group *cgroups.Group) Exit {
	if exit == (Exit{}) || k.hasLastStatus() || !group.OOMKilled(names.LeafCgroup) {
		return exit
	}
	exit = killed()
	exit.OOMKilled = true
	return exit
}

// ending is how a pod is taken down.
type ending int

const (
	// deletePod deletes the pod, unless a network could not be disconnected: then the pod
	// stays, as a dead one if it has not exited, and Collect tries again.
	deletePod ending = iota
	// keepLogs leaves plan, state, logs and volumes.
	keepLogs
	// deleteAnyway deletes the pod, whatever a network's plugin says.
	deleteAnyway
)

// ending is how the pod is taken down when it has ended by itself.
func (p *Pod) ending() ending {
	if p.Plan.Remove && !p.held() {
		return deletePod
	}
	return keepLogs
}

// takeDown kills the pod's processes, disconnects it from its networks, and removes its cgroups
// and files, and releases the pod's lock, also after an error. It may be repeated with the lock, and needs only the
// pod's folder.
func (k *Keeper) takeDown(group *cgroups.Group, exit Exit, how ending) error {
	defer k.lock.Close()
	return k.takeDownLocked(group, exit, how)
}

func (k *Keeper) takeDownLocked(group *cgroups.Group, exit Exit, how ending) error {
	group.Claim(k.State.MissingCgroups)
	if err := errors.Join(group.Kill(), k.removeMonitorCgroup(), group.Remove()); err != nil {
		return fmt.Errorf("take down pod %s: %w", k.Plan.UUID, err)
	}
	k.recordExit(exit)
	err := k.disconnectOnce(how == deleteAnyway)
	switch {
	case how == keepLogs:
		return errors.Join(err, k.keepEnded(exit))
	case err != nil && how == deletePod:
		return errors.Join(err, k.save())
	}
	return errors.Join(err, k.removeDir())
}

// keepEnded removes a pod's files but for plan, state, logs and volumes.
func (k *Keeper) keepEnded(exit Exit) error {
	if err := rmtree.Remove(filepath.Join(k.Dir, rootDir)); err != nil {
		return fmt.Errorf("take down pod %s: %w", k.Plan.UUID, err)
	}
	if k.State.Exit == nil {
		k.State.Exit = &exit
	}
	k.State.Phase, k.State.TakeDownError = Exited, ""
	if k.State.Ended.IsZero() {
		k.State.Ended = time.Now().UTC()
	}
	if err := k.save(); err != nil {
		return fmt.Errorf("take down pod %s: %w", k.Plan.UUID, err)
	}
	return nil
}
