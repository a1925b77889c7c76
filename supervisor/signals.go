package supervisor

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CatchSignals returns a context that ends at the first SIGTERM, SIGINT or
// SIGQUIT. Later ones change nothing: a stop under way is bounded in time.
//
// Every other signal that would end a Go program does nothing, since PID 1 of a pod
// must not die of what an app sends it, nor of a log that meets a file size limit
// (SIGXFSZ). Most are ignored, and stay so in a program that is executed
// (signal(7)): what a Container starts has them at their default by its own doing.
// SIGURG stays with the Go runtime, which preempts goroutines by it, and SIGCHLD with
// the Reaper. Call it once, before the first child; release gives all signals back.
func CatchSignals(parent context.Context) (ctx context.Context, release func()) {
	unwanted := []os.Signal{
		syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGSTKFLT,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
		syscall.SIGIO, syscall.SIGPWR, syscall.SIGSYS,
	}
	signal.Ignore(unwanted...)
	// Those that a program's own faults give it, which are the runtime's, are caught
	// where somebody else has sent them. Nobody reads this channel: what does not fit into it is
	// dropped, as wanted. To catch one takes two threads and 25 µs of a pod's start.
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV)
	ctx, cancel := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	setDefaults(actionDefault, actionIgnore)
	return ctx, func() {
		cancel()
		signal.Stop(faults)
		signal.Reset(unwanted...)
		setDefaults(actionIgnore, actionDefault)
	}
}

// An action of a signal, as the kernel has it (rt_sigaction(2)): the handler
// first, then flags, restorer and mask.
type action [5]uintptr

const (
	actionDefault = 0 // SIG_DFL
	actionIgnore  = 1 // SIG_IGN
)

// setDefaults changes the action of the signals that os/signal has no part in,
// where it is from: those that C libraries use between their threads.
//
// Left at their default, they can end even PID 1 of a PID namespace. The kernel
// drops such a signal when it is sent, but not while the main thread blocks it, as
// a Go program's does during a fork; then it finds another thread to end the
// process with (complete_signal in kernel/signal.c).
func setDefaults(from, to uintptr) {
	const first, last, maskSize = 32, 34, 8
	for s := uintptr(first); s <= last; s++ {
		var old action
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, 0, uintptr(unsafe.Pointer(&old)), maskSize, 0, 0)
		if errno == 0 && old[0] == from {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&action{to})), 0, maskSize, 0, 0)
		}
	}
}
