package boot

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// claimRoot makes sure that no other stager runs in this root: this stager would treat the
// other's cgroups and volumes as leftovers of a dead stager. The claim is a lock on the root
// folder, which ends with this process; on a file system without locks every claim succeeds.
// The kernel releases the lock before a daemon learns of a stager's end.
func claimRoot(context.Context, *Pod) error {
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("claim root: %w", err)
	}
	if errors.Is(unix.Flock(root, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return errors.New("another stager already runs in this root")
	}
	return nil
}
