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
//
// The signals of the program's own faults are ignored too, unless another handler than the Go runtime's has them
// (package waiter). A fault of the program still ends it then, but without the Go runtime's report.
//
// Call it once, before the first child; release undoes it.
func IgnoreSignals() (release func()) {
	unwanted := []os.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
		syscall.SIGPROF, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGPWR,
	}
	for s := lastOfLibraries + 1; s <= last; s++ {
		unwanted = append(unwanted, syscall.Signal(s))
	}
	signal.Ignore(unwanted...)
	// This channel is never read: a signal that does not fit is
	// dropped, as wanted. Catching one takes two threads and 25 µs of a pod's start.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGABRT)
	signal.Notify(caught, stops()...)     // not ignored: a child would start so
	signal.Notify(caught, syscall.SIGHUP) // not ignored: os/signal cannot take that back
	restore := ignoreFaults()
	setDefaults(actionDefault, actionIgnore)
	return func() {
		// For a signal with a handler of the Go runtime, Reset alone would leave it ignored:
		// Go has put the handler back only once somebody was notified of it.
		signal.Notify(caught, unwanted...)
		signal.Stop(caught)
		restore()
		setDefaults(actionIgnore, actionDefault)
	}
}

// ignoreFaults has the kernel ignore the signals of a program's own faults where the Go runtime would handle them: it
// takes one that another process sends with data of its own (rt_sigqueueinfo(2); fcntl(2), F_SETSIG) for a fault, and
// ends the program. The kernel sends a real one in spite of it, and ends the process (force_sig_info_to_task in
// kernel/signal.c). A child has them at their default, because the Go runtime resets its handlers there. restore
// undoes it.
func ignoreFaults() (restore func()) {
	handled := map[syscall.Signal]action{}
	runtimes := actionOf(syscall.SIGURG)
	for _, s := range []syscall.Signal{
		syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS,
	} {
		if before := actionOf(s); before[0] == runtimes[0] {
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
