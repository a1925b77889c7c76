package supervisor

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// CatchSignals returns a context that ends at the first SIGTERM, SIGINT or
// SIGQUIT. Later ones change nothing: a stop under way is bounded in time.
//
// It also takes every other signal that would end a Go program, since PID 1
// of a pod must not die of what an app sends it; a caught signal, unlike an
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
	return ctx, func() {
		cancel()
		signal.Stop(unwanted)
	}
}
