package supervisor

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// CatchSignals returns a context that ends at the first SIGTERM, SIGINT or SIGQUIT, by which a daemon asks for the
// pod's end. Later ones change nothing: a stop under way is bounded in time. A closed pipe (SIGPIPE), a file at a limit
// of its size (SIGXFSZ) and a terminal that hangs up (SIGHUP) do not end the program. Processes that it starts have
// these signals at their defaults. Call it once; release undoes it.
func CatchSignals(parent context.Context) (ctx context.Context, release func()) {
	unwanted := make(chan os.Signal, 1) // never read
	signal.Notify(unwanted, syscall.SIGPIPE, syscall.SIGXFSZ, syscall.SIGHUP)
	ctx, cancel := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	return ctx, func() {
		cancel()
		signal.Stop(unwanted)
	}
}
