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
// It also takes every other signal that would end a Go program, since PID 1
// of a pod must not die of what an app sends it, nor of a log that meets a file
// size limit (SIGXFSZ); a caught signal, unlike an
// ignored one, goes back to its default in a program that is executed
// (signal(7)). SIGURG stays with the Go runtime, which preempts goroutines by
// it, and SIGCHLD with the Reaper. Call it once, before the first child;
// release gives all signals back.
func CatchSignals(parent context.Context) (ctx context.Context, release func()) {
	// Nobody reads this channel: what does not fit into it is dropped, as wanted.
	unwanted := make(chan os.Signal, 1)
	signal.Notify(unwanted,
		syscall.SIGHUP, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS,
		syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGSTKFLT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGIO, syscall.SIGPWR, syscall.SIGSYS)
	ctx, cancel := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	setDefaults(actionDefault, actionIgnore)
	return ctx, func() {
		cancel()
		signal.Stop(unwanted)
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
