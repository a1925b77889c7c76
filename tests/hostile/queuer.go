package hostile

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queuer keeps what the kernel counts for its user at the limits: memory of POSIX message queues, and pending signals
// with data.
func queuer() error {
	runtime.LockOSThread() // signals wait at a thread
	const sig = 40         // of those with data
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{1 << (sig - 1)}}, nil); err != nil {
		return err
	}
	for i := 0; ; i++ {
		for queued(sig) {
		}
		for MakeQueue(fmt.Sprint("queuer", i)) == nil {
			i++
		}
		time.Sleep(10 * time.Millisecond) // others of the user may have freed some
	}
}

// MakeQueue makes a POSIX message queue of the default size, which is a tenth of the default limit, and closes it.
func MakeQueue(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(text)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("make message queue %s: %w", name, errno)
	}
	return unix.Close(int(fd))
}

// RemoveQueue removes a POSIX message queue.
func RemoveQueue(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(text)), 0, 0); errno != 0 {
		return fmt.Errorf("remove message queue %s: %w", name, errno)
	}
	return nil
}

// queued sends this thread a signal with data, and reports whether the kernel has taken it.
func queued(sig int) bool {
	info := [32]int32{0: int32(sig), 2: -1} // siginfo_t, SI_QUEUE
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), uintptr(sig),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	return errno == 0
}
