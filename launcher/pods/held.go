package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// heldFile is a file of a pod that Hold has locked. The kernel releases the lock with the process that has it, however
// that ends.
const heldFile = "held"

// Hold keeps a pod's folder until release is called, although its plan has the pod deleted at its end, and whatever
// collects ended pods meanwhile. Its lock cannot do so: a monitor may have that. A pod that is held is an error.
func (s *Store) Hold(p *Pod) (release func(), err error) {
	path := filepath.Join(p.Dir, heldFile)
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("hold pod %q: %w", p.Plan.Name, err)
		}
		if !tryLock(file) {
			_ = file.Close()
			return nil, p.heldError()
		}
		if isAt(file, path) {
			return func() { _, _ = os.Remove(path), file.Close() }, nil // without the file it is not held either
		}
		_ = file.Close() // another one has removed it before we had the lock
	}
}

func isAt(file *os.File, path string) bool {
	opened, openedErr := file.Stat()
	now, err := os.Stat(path)
	return openedErr == nil && err == nil && os.SameFile(opened, now)
}

// ErrHeld says that a restart has the pod, which it deletes.
var ErrHeld = errors.New("is being restarted")

func (p *Pod) heldError() error { return fmt.Errorf("pod %q %w", p.Plan.Name, ErrHeld) }

func (p *Pod) held() bool {
	held, err := isHeld(filepath.Join(p.Dir, heldFile))
	return err == nil && held
}
