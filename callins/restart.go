package callins

import (
	"context"

	"kurma.io/stager/supervisor"
)

// callRestart is the call-in restart: it ends the run of the app that args name, and returns when the app runs again.
// An error is an *ExitError with Code 1. If the call-in is killed, the app is still restarted.
func callRestart(ctx context.Context, s Streams, args []string) error {
	if err := restart(ctx, s, args); err != nil {
		return exit("restart", exitDocument, err)
	}
	return nil
}

func restart(ctx context.Context, s Streams, args []string) error {
	app, err := oneApp(args)
	if err != nil {
		return err
	}
	c, err := dial(ctx, s.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.ask(request{Version: protocolVersion, Call: requestRestart, App: app}); err != nil {
		return err
	}
	_, p, err := c.next(kindExit) // the supervisor has a limit
	p.close()
	return err
}

// serveRestart returns the handler of requestRestart for the pod. It no longer waits for the app when the caller has
// gone.
func serveRestart(pod *supervisor.Supervisor) Handler {
	return func(ctx context.Context, call *Call) error {
		if err := unlimited(call.conn); err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			defer stop()
			p, _ := call.conn.receive(&note{}) // the end of the connection
			p.close()
		}()
		if err := pod.Restart(ctx, call.request.App); err != nil {
			return sendError(call.conn, exitDocument, err)
		}
		return sendReply(call.conn, reply{Kind: kindExit}, nil)
	}
}
