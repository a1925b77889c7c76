package pods

import (
	"fmt"
	"path/filepath"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/jsonfile"
)

// read reads a pod from disk. With an error it returns the pod with whatever could be
// read. The pod of a monitor that was killed is in Phase Dead.
func (s *Store) read(uuid string) (*Pod, error) {
	pod := &Pod{Dir: filepath.Join(s.dir, uuid)}
	if err := jsonfile.Read(filepath.Join(pod.Dir, planFile), &pod.Plan); err != nil {
		return pod, err
	}
	if pod.Plan.UUID != uuid {
		return pod, fmt.Errorf("%s belongs to pod %q", planFile, pod.Plan.UUID)
	}
	return pod, pod.refresh()
}

// refresh looks at the lock first and reads the state then: if the monitor or attendant ends between
// the two, it has written its last state.
func (p *Pod) refresh() error {
	held, err := filelock.IsHeld(filepath.Join(p.Dir, lockFile))
	if err != nil {
		return err
	}
	return p.readState(held)
}

// readState reads the state of a pod that another process watches, or none. A process that has the pod's lock knows
// that none does.
func (p *Pod) readState(monitored bool) error {
	if err := jsonfile.Read(filepath.Join(p.Dir, stateFile), &p.State); err != nil {
		return err
	}
	failed := p.State.TakeDownError != ""
	if monitored && !failed || p.State.Phase == Exited {
		return nil
	}
	if p.State.Unattended && p.State.Phase == Running && !failed {
		if ended, err := p.State.Stager.ended(); err != nil || !ended {
			return err
		}
	}
	p.State.Phase = Dead
	return nil
}

// Get returns the pod with that complete UUID. A pod that the store does not have is fs.ErrNotExist.
func (s *Store) Get(uuid string) (*Pod, error) {
	if !isUUID(uuid) {
		return nil, fmt.Errorf("%q is not a UUID", uuid)
	}
	return s.read(uuid)
}

// alive reports whether the pod has not ended.
func (p *Pod) alive() bool {
	return p.State.Phase != Exited && p.State.Phase != Dead && p.State.Phase != Damaged
}

// save does not sync: after a power loss the pod has ended as well, and Collect deletes it even if its files are
// damaged.
func (k *Keeper) save() error { return jsonfile.Write(filepath.Join(k.Dir, stateFile), k.State) }
