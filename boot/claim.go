package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	claimLimit = 2 * time.Second
	claimAgain = 10 * time.Millisecond
)

// claimRoot makes sure that no other stager runs in this root: this stager would treat the
// other's cgroups and volumes as leftovers of a dead stager. The claim is a lock on the root
// folder, which ends with this process; on a file system without locks every claim succeeds.
// claimRoot waits a moment for a supervisor that is about to end, as after a signal.
func claimRoot(context.Context, *Pod) error {
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("claim root: %w", err)
	}
	for deadline := time.Now().Add(claimLimit); ; time.Sleep(claimAgain) {
		if !errors.Is(unix.Flock(root, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("another stager already runs in this root")
		}
	}
}
