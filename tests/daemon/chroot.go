package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// chrootMark is a file in a chroot's /mnt, and not in the host's.
const chrootMark = "/mnt/stager-tests-chroot"

// chrootScript puts $2 into a chroot below the folder $1, with the host's files, in a new mount namespace. If $3
// is "ramdisk", the namespace's root cannot be moved away, as a host's that runs from its initial
// RAM disk: pivot_root(2) returns the same error when the mount below the root is shared. The program
// finds no cgroups in which it could make its own.
const chrootScript = `set -e
if [ "$3" = ramdisk ] && [ -z "$covered" ]; then
	mount --make-rprivate /
	mount --make-shared /
	mount --rbind / /
	covered=yes exec nsenter --mount=/proc/self/ns/mnt sh -c "$script" sh "$@"
fi
mount --make-rslave /
if [ "$3" = ramdisk ] && unshare -m --propagation unchanged sh -c 'mount --bind "$1" "$1" && cd "$1" && pivot_root . .' sh "$1"; then
	echo 'pivot_root works here' >&2
	exit 1
fi
mount --rbind / "$1"
mount -t tmpfs none "$1/mnt"
mount -t tmpfs none "$1/sys/fs/cgroup"
: >"$1$mark"
exec chroot "$1" "$2"`

// ChrootOnRAMDisk returns a command that executes a program without arguments in a chroot below the
// folder, as a daemon without mount namespaces does, on a host whose root pivot_root(2) cannot move
// away. The command needs root.
func ChrootOnRAMDisk(ctx context.Context, folder, program string) *exec.Cmd {
	return chroot(ctx, folder, program, "ramdisk")
}

// Chroot is ChrootOnRAMDisk on a usual host.
func Chroot(ctx context.Context, folder, program string) *exec.Cmd {
	return chroot(ctx, folder, program, "")
}

func chroot(ctx context.Context, folder, program, host string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", chrootScript, "sh", folder, program, host)
	cmd.Env = append(os.Environ(), "script="+chrootScript, "mark="+chrootMark)
	return cmd
}

// volumesVariable is the folder of the volumes, for volumeScript.
const volumesVariable = "volumes"

// volumeScript executes $2 in a chroot below the folder $1, with the host's files and a volume, which the daemon shares
// with the host and in which a file system is mounted. That must still be there afterwards.
const volumeScript = `set -e
mount --make-rprivate /
mkdir "$1/over" "$1/source" "$1/root"
mount -t tmpfs over "$1/over"
mkdir "$1/over/upper" "$1/over/work"
mount -t overlay -o "lowerdir=/,upperdir=$1/over/upper,workdir=$1/over/work" root "$1/root"
mount --rbind /tmp "$1/root/tmp"
mount --rbind /proc "$1/root/proc"
mount -t tmpfs none "$1/root/sys"
mkdir -p "$1/root$volumes/data"
mount -t tmpfs source "$1/source"
mount --make-shared "$1/source"
mkdir "$1/source/sub"
mount -t tmpfs sub "$1/source/sub"
: >"$1/source/sub/file"
mount --rbind "$1/source" "$1/root$volumes/data"
code=0
chroot "$1/root" "$2" || code=$?
ls "$1/source/sub/file" "$1/root$volumes/data/sub/file" >/dev/null
exit $code`

// ChrootWithVolume returns a command that executes a program without arguments in a chroot below the folder, with a
// volume that is shared with the host, and fails if a mount in the volume is gone afterwards. The command needs root.
func ChrootWithVolume(ctx context.Context, folder, program string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", volumeScript, "sh", folder, program)
	cmd.Env = append(os.Environ(), volumesVariable+"="+names.VolumesDir)
	return cmd
}

// HasVolume reports whether this process is below ChrootWithVolume, with an error if it does not see what is mounted in
// the volume.
func HasVolume() (bool, error) {
	if os.Getenv(volumesVariable) == "" {
		return false, nil
	}
	_, err := os.Stat(names.VolumesDir + "/data/sub/file")
	return true, err
}

// LeaveChroot checks that the working directory is the root, and tries to leave the chroot, by joining this process's
// own mount namespace, which leads to the namespace's root (setns(2)). It returns nil if that root is the folder of
// Chroot, else an error. The goroutine's thread ends with the goroutine.
func LeaveChroot() error {
	runtime.LockOSThread()
	if _, err := os.Stat(chrootMark); err != nil {
		return fmt.Errorf("the root is not the stager's: %w", err)
	}
	if dir, err := unix.Getwd(); err != nil || dir != "/" {
		return fmt.Errorf("the working directory is %q and not the root: %w", dir, err)
	}
	own, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer own.Close()
	// setns(2) refuses a thread that shares its root with others.
	if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(own.Fd()), unix.CLONE_NEWNS)); err != nil {
		return err
	}
	if _, err := os.Stat(chrootMark); err != nil {
		return fmt.Errorf("setns(2) leads out of the stager's root: %w", err)
	}
	return nil
}
