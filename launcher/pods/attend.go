package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	lock      *os.File
	exited    <-chan Exit
	unseen    bool // this process is not the stager's parent: exited is closed without a value
	connector *networks.Connector
}

// StartUnattended launches the pod that Create has made, and returns when it is up. The pod has no monitor, and
// outlives this process: the caller calls Attend. Starter is this program's own command line, with its name as the
// first word, for a process that calls Exec with the words that are added to it. enter, unless nil, is called on the
// thread that starts it, and may move the thread to other namespaces, but not to another mount namespace. Errors are
// those of Run: the pod is deleted then, or the error says what is left.
func (k *Keeper) StartUnattended(ctx context.Context, starter []string, enter func() error) (*Attendant, error) {
	k.State.Unattended, k.starter, k.enter = true, starter, enter
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("launch pod %q: %w", k.Plan.Name, err), k.removeDir())
	}
	apps := k.recordApps()
	s, exit, err := k.bringUp(ctx, group, func() error {
		apps.up()
		return nil
	})
	if err = k.failed(apps.finish(), err); err != nil {
		return nil, errors.Join(err, k.takeDown(group, exit, deletePod))
	}
	a := &Attendant{dir: k.Dir, lock: k.lock, connector: k.connector}
	if s == nil { // it was up for a moment
		exited := make(chan Exit, 1)
		exited <- exit
		a.exited = exited
	} else {
		a.exited = s.exited
	}
	return a, nil
}

// Adopt attends an unattended pod, which may have ended since the process that attended it has. It kills one whose
// start was not finished. If another process has the pod's lock, Adopt waits for it until ctx ends. It returns nil for
// a pod that has a monitor, is taken down or deleted.
func (s *Store) Adopt(ctx context.Context, p *Pod) (*Attendant, error) {
	if !p.State.Unattended || p.State.Phase == Exited {
		return nil, nil
	}
	a, err := s.adopt(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("attend pod %q: %w", p.Plan.Name, err)
	}
	return a, nil
}

func (s *Store) adopt(ctx context.Context, p *Pod) (*Attendant, error) {
	lock, err := openLock(filepath.Join(p.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if locked, err := filelock.Hold(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	} else if !locked {
		if err := awaitLock(ctx, lock); err != nil {
			return nil, err
		}
	}
	var state State
	err = jsonfile.Read(filepath.Join(p.Dir, stateFile), &state)
	if errors.Is(err, fs.ErrNotExist) || err == nil && state.Phase == Exited {
		return nil, lock.Close()
	}
	if err == nil && state.Phase != Running { // nobody was told that it is up, or it is being stopped
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

// Attend returns when the pod has ended and is taken down, as Run leaves it; it records no events of apps. When ctx
// ends before, it returns nil, and the pod can be adopted, as after an error: it is Dead then. It is called once.
func (a *Attendant) Attend(ctx context.Context) error {
	defer a.lock.Close()
	var exit Exit
	select {
	case exit = <-a.exited:
	case <-ctx.Done():
		return nil
	}
	k := &Keeper{Pod: Pod{Dir: a.dir}, lock: a.lock, connector: a.connector}
	if err := k.attended(exit, a.unseen); err != nil {
		return fmt.Errorf("take down pod %q: %w", k.Plan.Name, err)
	}
	return nil
}

// attended takes down an unattended pod whose stager has ended. It is unseen how if the stager was no child.
func (k *Keeper) attended(exit Exit, unseen bool) error {
	if err := k.reload(); err != nil {
		return err
	}
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err != nil {
		return err
	}
	if unseen {
		if ended, err := k.State.Stager.ended(); err != nil || !ended {
			return errors.Join(err, errors.New("its stager has not ended"))
		}
		exit = k.exit()
		if k.State.Ended.IsZero() {
			k.State.Ended, _ = k.lastStatusTime()
		}
	}
	exit = k.findOOM(exit, group)
	if err = k.takeDownLocked(group, exit, k.ending()); err == nil {
		return nil
	}
	k.State.TakeDownError = strings.ReplaceAll(err.Error(), "\n", "; ")
	if k.State.Ended.IsZero() {
		k.State.Ended = time.Now().UTC()
	}
	k.recordExit(exit)
	return errors.Join(err, k.save())
}
