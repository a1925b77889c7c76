package boot

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// guardLimits prevents apps from changing the supervisor's resource limits. The supervisor and
// root's apps have the same user and group IDs, which is all that prlimit(2) asks for, and
// no Landlock domain denies it; with a saved group ID that no app has, the supervisor is out of their
// reach but for CAP_SYS_RESOURCE. A FUSE file system that serves its mounter alone compares
// the same IDs, so this phase comes after the roots and volumes. A program that is executed has its saved
// group ID from the effective one again (execve(2)).
func (b *boot) guardLimits(context.Context) error {
	const unused = 65534
	if err := unix.Setresgid(-1, -1, unused); err != nil {
		b.log.Warn("apps of user 0 can change the supervisor's resource limits", "error", os.NewSyscallError("setresgid", err))
	}
	return nil
}
