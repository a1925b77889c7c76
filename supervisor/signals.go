package supervisor

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CatchSignals is IgnoreSignals for a process that a signal asks to stop: it returns a context that
// ends at the first SIGTERM, SIGINT or SIGQUIT. Later ones change nothing: a stop under way is
// bounded in time. Every process that may signal it can stop it. Call it once, before the first child;
// release undoes it.
func CatchSignals(parent context.Context) (ctx context.Context, release func()) {
	ignored := ignoreAllBut(stops()...)
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
// (SIGXFSZ). They are ignored, so that the kernel drops them when they are sent: a signal with a handler wakes the
// thread that an app has named, and a flood of them keeps the thread from its work for the app's neighbours. Some stay
// ignored in a program that is executed (signal(7)): a Container resets them to their default in what it starts.
// The Reaper keeps SIGCHLD.
//
// SIGURG, by which the Go runtime preempts a goroutine at any instruction, is ignored too. The runtime then preempts
// goroutines where they call functions (runtime/preempt.go), as with GODEBUG=asyncpreemptoff=1. A loop that calls none
// delays the garbage collector and must be short. Package pprof's CPU profile does not work. Signal 33 keeps its
// handler: syscall.AllThreadsSyscall, and with cgo the C library, wait for its handling in every thread.
//
// The signals of the program's own faults are ignored too, unless another handler than the Go runtime's has them
// (package waiter). A fault of the program still ends it then, but without the Go runtime's report.
//
// Call it once, before the first child. Release undoes it, which takes milliseconds: a process that is about to end
// need not call it.
func IgnoreSignals() (release func()) { return ignoreAllBut() }

// ignoreAllBut is IgnoreSignals, which leaves these signals of the runtime's alone.
func ignoreAllBut(kept ...os.Signal) (release func()) {
	unwanted := []os.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
		syscall.SIGWINCH, syscall.SIGIO, syscall.SIGPWR,
	}
	for s := lastOfLibraries + 1; s <= last; s++ {
		unwanted = append(unwanted, syscall.Signal(s))
	}
	signal.Ignore(unwanted...)
	restore := ignoreRuntimes(kept)
	setDefaults(actionDefault, actionIgnore)
	return func() {
		// For a signal with a handler of the Go runtime, Reset alone would leave it ignored:
		// Go has put the handler back only once somebody was notified of it.
		caught := make(chan os.Signal, 1) // never read
		signal.Notify(caught, unwanted...)
		signal.Stop(caught)
		restore()
		setDefaults(actionIgnore, actionDefault)
	}
}

// ignoreRuntimes has the kernel ignore signals which the Go runtime would handle, and which package os/signal cannot
// ignore so that a child has them at their default, or not at all. The Go runtime does not learn of it, and resets its
// handlers in a child.
//
// The signals of a program's own faults are among them: the Go runtime mistakes a signal that another process sends
// with data (rt_sigqueueinfo(2); fcntl(2), F_SETSIG) for a fault, and ends the program. The kernel still sends a real
// fault, and ends the process (force_sig_info_to_task in kernel/signal.c). restore undoes ignoreRuntimes.
func ignoreRuntimes(kept []os.Signal) (restore func()) {
	handled := map[syscall.Signal]action{}
	runtimes := actionOf(syscall.SIGCHLD)
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGURG, syscall.SIGPROF,
		syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS,
	} {
		if before := actionOf(s); before[0] == runtimes[0] && !slices.Contains(kept, os.Signal(s)) {
			handled[s] = before
			setAction(s, action{actionIgnore})
		}
	}
	return func() {
		for s, before := range handled {
			setAction(s, before)
		}
	}
}

// An action of a signal, as the kernel has it (rt_sigaction(2)): the handler
// first, then flags, restorer and mask.
type action [5]uintptr

const (
	actionDefault = 0 // SIG_DFL
	actionIgnore  = 1 // SIG_IGN
)

// The signals that os/signal leaves alone, those that C libraries use between their threads, and the last signal.
const firstOfLibraries, lastOfLibraries, last = 32, 34, 64

// setDefaults changes the action of the signals that os/signal leaves alone from one action to another.
//
// At their default, they can end even PID 1 of a PID namespace. The kernel
// drops such a signal when it is sent, but not while the main thread blocks it, as
// a Go program's main thread does during a fork; then the kernel picks another thread to end the
// process with (complete_signal in kernel/signal.c).
func setDefaults(from, to uintptr) {
	for s := syscall.Signal(firstOfLibraries); s <= lastOfLibraries; s++ {
		if actionOf(s)[0] == from {
			setAction(s, action{to})
		}
	}
}

const maskSize = 8

// actionOf returns a signal's action, and setAction sets it. Neither fails for a signal other than SIGKILL and SIGSTOP.
func actionOf(s syscall.Signal) (a action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&a)), maskSize, 0, 0)
	return a
}

func setAction(s syscall.Signal, a action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&a)), 0, maskSize, 0, 0)
}
