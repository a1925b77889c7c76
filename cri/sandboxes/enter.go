package sandboxes

import (
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread into the sandbox's own namespaces, which are pinned in its folder. It is for
// thread.New. A namespace that is not pinned any more is an error: what the thread starts would be in the host's.
func Enter(dir string, r records.Sandbox) error {
	for _, n := range own(r) {
		pin := filepath.Join(dir, n.name)
		pinned, err := networks.IsPinned(pin)
		if err != nil {
			return fmt.Errorf("enter namespace of sandbox %s: %w", r.ID, err)
		}
		if !pinned {
			return fmt.Errorf("enter namespace of sandbox %s: %s pins none", r.ID, pin)
		}
		file, err := os.Open(pin)
		if err != nil {
			return fmt.Errorf("enter namespace of sandbox: %w", err)
		}
		err = unix.Setns(int(file.Fd()), n.flag)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("enter namespace %s: %w", pin, err)
		}
	}
	return nil
}
