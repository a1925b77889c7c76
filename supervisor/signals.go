package supervisor

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CatchSignals is IgnoreSignals for a process that a signal asks to stop: it returns a context that
// ends at the first SIGTERM, SIGINT or SIGQUIT. Later ones change nothing: a stop under way is
// bounded in time. Every process that may signal it can stop it. Call it once, before the first child;
// release undoes it.
func CatchSignals(parent context.Context) (ctx context.Context, release func()) {
	ignored := IgnoreSignals()
	ctx, cancel := signal.NotifyContext(parent, stops()...)
	return ctx, func() {
		cancel()
		ignored()
	}
}

// stops are the signals by which a daemon asks for the end of a pod.
func stops() []os.Signal { return []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} }

// IgnoreSignals makes every signal that would end a Go program do nothing, since PID 1 of a pod
// must not die of a signal that an app sends it, nor of a log that reaches a file size limit
// (SIGXFSZ). Most are ignored, and stay ignored in a program that is executed
// (signal(7)): a Container resets them to their default in what it starts.
// The Go runtime keeps SIGURG, by which it preempts goroutines, the Reaper keeps SIGCHLD.
// Call it once, before the first child; release undoes it.
func IgnoreSignals() (release func()) {
	unwanted := []os.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGSTKFLT,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
		syscall.SIGIO, syscall.SIGPWR, syscall.SIGSYS,
	}
	signal.Ignore(unwanted...)
	// The signals of a program's own faults belong to the Go runtime. Those that another process
	// sends are caught here. This channel is never read: a signal that does not fit is
	// dropped, as wanted. Catching one takes two threads and 25 µs of a pod's start.
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV)
	signal.Notify(faults, stops()...)     // not ignored: a child would start so
	signal.Notify(faults, syscall.SIGHUP) // not ignored: os/signal cannot take that back
	setDefaults(actionDefault, actionIgnore)
	return func() {
		// For a signal with a handler of the Go runtime, Reset alone would leave it ignored:
		// Go has put the handler back only once somebody was notified of it.
		signal.Notify(faults, unwanted...)
		signal.Stop(faults)
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

// setDefaults changes the action of the signals that os/signal leaves alone, those
// that C libraries use between their threads, from one action to another.
//
// At their default, they can end even PID 1 of a PID namespace. The kernel
// drops such a signal when it is sent, but not while the main thread blocks it, as
// a Go program's main thread does during a fork; then the kernel picks another thread to end the
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
