package hostile

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// next is the number of PIDs that stopper and killer aim at.
const next = 50

// stopper sends SIGSTOP to the next PIDs, for ever: whatever process starts in the pod is stopped
// between its fork and its exec, and again whenever it goes on.
func stopper() error {
	return aimAtNext(func(last int) {
		for range 20 { // to learn the last PID takes longer
			strike(last, unix.SIGSTOP)
		}
	})
}

// Up is the file that says to killer that the pod is up: before, it would end the pod's start.
const Up = "/probe/up"

// killer sends SIGKILL to the next PIDs, a tenth of the time: nothing starts while it does. It also sends every
// signal to PID 1.
func killer() error {
	for unix.Access(Up, unix.F_OK) != nil {
		rest()
	}
	const period, active = 500 * time.Millisecond, 50 * time.Millisecond
	begin := time.Now()
	return aimAtNext(func(last int) {
		if time.Since(begin) < active {
			strike(last, unix.SIGKILL)
			return
		}
		for sig := unix.Signal(1); sig <= 64; sig++ {
			send(1, sig)
		}
		time.Sleep(period - active)
		begin = time.Now()
	})
}

// aimAtNext calls f for ever, with the PID that was assigned last.
func aimAtNext(f func(last int)) error {
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
		f(last)
	}
}

// strike sends a signal to the PIDs after last.
func strike(last int, sig unix.Signal) {
	for pid := last + 1; pid <= last+next; pid++ {
		send(pid, sig)
	}
}

// send sends a signal by the shortest way. Most of the PIDs do not exist.
func send(pid int, sig unix.Signal) {
	_, _, _ = unix.RawSyscall(unix.SYS_KILL, uintptr(pid), uintptr(sig), 0)
}
