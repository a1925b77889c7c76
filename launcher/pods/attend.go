package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// Attendant waits for the end of a pod without a monitor, and has the pod's lock meanwhile. It is for a process with
// many pods, such as a server, which may end before them: the next one calls Adopt.
type Attendant struct {
	dir       string
	lock      *os.File // nil if the pod has ended already
	exited    <-chan Exit
	unseen    bool // this process is not the stager's parent: exited is closed without a value
	connector *networks.Connector
}

// StartUnattended launches the pod that Create has made, and returns when it is up. The pod has no monitor, and
// outlives this process: the caller calls Attend. enter, unless nil, is called on the thread that starts the stager,
// and may move it to other namespaces, but not to another mount namespace. Errors are those of Run: the pod is deleted
// then.
func (k *Keeper) StartUnattended(ctx context.Context, enter func() error) (*Attendant, error) {
	k.State.Unattended, k.enter = true, enter
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("launch pod %q: %w", k.Plan.Name, err), k.removeDir())
	}
	apps := k.recordApps()
	s, exit, err := k.bringUp(ctx, group, func() error {
		apps.up()
		return nil
	})
	err = k.failed(apps.finish(), err)
	switch {
	case err != nil:
		return nil, errors.Join(err, k.takeDown(group, exit, deletePod))
	case s == nil:
		return new(Attendant), k.takeDown(group, exit, k.ending())
	}
	return &Attendant{dir: k.Dir, lock: k.lock, exited: s.exited, connector: k.connector}, nil
}

// Adopt attends an unattended pod, which may have ended since the process that attended it has. It kills one whose
// start was not finished. It returns nil for any other pod, and for one that is attended or taken down.
func (s *Store) Adopt(p *Pod) (*Attendant, error) {
	if !p.State.Unattended || p.State.Phase == Exited {
		return nil, nil
	}
	a, err := s.adopt(p)
	if err != nil {
		return nil, fmt.Errorf("attend pod %q: %w", p.Plan.Name, err)
	}
	return a, nil
}

func (s *Store) adopt(p *Pod) (*Attendant, error) {
	lock, err := openLock(filepath.Join(p.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if locked, err := filelock.Hold(lock); err != nil || !locked {
		return nil, errors.Join(err, lock.Close())
	}
	var state State
	if err := jsonfile.Read(filepath.Join(p.Dir, stateFile), &state); err != nil || state.Phase == Exited {
		return nil, errors.Join(err, lock.Close())
	}
	if state.Phase != Running { // nobody was told that it is up, or it is being stopped
		err = state.Stager.signal(unix.SIGKILL)
	}
	exited, pidfd := make(chan Exit), -1
	if err == nil {
		pidfd, err = state.Stager.open()
	}
	switch {
	case errors.Is(err, errGone):
		close(exited)
	case err != nil:
		return nil, errors.Join(err, lock.Close())
	default:
		go func() {
			defer close(exited)
			_ = awaitEnd(pidfd) // Attend looks
		}()
	}
	return &Attendant{dir: p.Dir, lock: lock, exited: exited, unseen: true, connector: s.Connector}, nil
}

// Attend returns when the pod has ended and is taken down, as Run leaves it. When ctx ends, it returns nil, and the pod
// can be adopted. It is called once.
func (a *Attendant) Attend(ctx context.Context) error {
	if a.lock == nil {
		return nil
	}
	k := &Keeper{Pod: Pod{Dir: a.dir}, lock: a.lock, connector: a.connector}
	var exit Exit
	select {
	case <-ctx.Done():
		return a.lock.Close()
	case exit = <-a.exited:
	}
	if err := k.reload(); err != nil {
		return errors.Join(err, a.lock.Close())
	}
	ended, err := k.State.Stager.ended()
	if err != nil || !ended {
		err = errors.Join(err, a.lock.Close())
		return fmt.Errorf("attend pod %q: process %d has not ended: %w", k.Plan.Name, k.State.Stager.PID, err)
	}
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err != nil {
		return errors.Join(fmt.Errorf("take down pod %q: %w", k.Plan.Name, err), a.lock.Close())
	}
	if a.unseen {
		exit = k.unseen()
	}
	return k.takeDown(group, k.findOOM(exit, group), k.ending())
}
