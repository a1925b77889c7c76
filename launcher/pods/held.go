package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/internal/filelock"
)

// Files of a pod that Hold and KeepLogs have locked. The kernel releases the lock with the process that has it, however
// that ends.
const (
	heldFile  = "held"
	shownFile = "shown"
)

// Hold keeps a pod's folder until release is called, although its plan has the pod deleted at its end, and whatever
// collects ended pods meanwhile. Its lock cannot do so: a monitor may have that. A pod that is held is an error.
func (p *Pod) Hold() (release func(), err error) { return p.hold(heldFile) }

// KeepLogs keeps the folder of a pod, when the pod has ended, from Collect until release is called: this process still
// shows the logs. It keeps it neither from Remove nor from a restart, which need not wait. One process may do so.
func (p *Pod) KeepLogs() (release func(), err error) { return p.hold(shownFile) }

func (p *Pod) hold(name string) (release func(), err error) {
	path := filepath.Join(p.Dir, name)
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("hold pod %q: %w", p.Plan.Name, err)
		}
		locked, err := filelock.Hold(file)
		if err == nil && !locked {
			err = p.heldError()
		}
		there := false
		if err == nil {
			there, err = isAt(file, path)
		}
		if err == nil && there {
			return func() { _, _ = os.Remove(path), file.Close() }, nil // without the file it is not held either
		}
		_ = file.Close() // another one has removed it before we had the lock
		if err != nil {
			return nil, err
		}
	}
}

// isAt reports whether the path is still that of the file.
func isAt(file *os.File, path string) (bool, error) {
	opened, err := file.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, now), err
}

// ErrHeld says that a restart has the pod, which it deletes.
var ErrHeld = errors.New("is being restarted")

func (p *Pod) heldError() error { return fmt.Errorf("pod %q %w", p.Plan.Name, ErrHeld) }

func (p *Pod) held() bool { return p.isHeld(heldFile) }

// isHeld reports whether a process holds that lock of the pod. A lock that cannot be looked at counts as held.
func (p *Pod) isHeld(name string) bool {
	held, err := p.lookAt(name)
	return held || err != nil
}

// lookAt is isHeld with the error. A lock that does not exist is not held.
func (p *Pod) lookAt(name string) (held bool, err error) {
	held, err = filelock.IsHeld(filepath.Join(p.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return held, err
}

// Kept reports whether Collect leaves a pod, as a process works on its folder, holds the folder, or shows its logs.
func (p *Pod) Kept() bool { return p.Locked() || p.held() || p.isHeld(shownFile) }
