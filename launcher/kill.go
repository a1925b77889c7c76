package main

import (
	"context"
	"errors"
	"syscall"

	"kurma.io/stager/plan"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// killCommand is `kill`.
func killCommand(c *cli) *cobra.Command {
	sig := unix.SIGKILL
	cmd := &cobra.Command{
		Use:   "kill POD [APP]",
		Short: "send a signal to the main processes of a pod's apps",
		Long: `kill sends a signal, SIGKILL unless --signal names another, to the main process of an app, or of each app
that runs. The pod's restart and exit policies then apply.`,
		Args:              wants(1, 2, "POD [APP]"),
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.kill(cmd.Context(), args, sig) },
	}
	cmd.Flags().FuncP("signal", "s", "the `SIGNAL`, a name such as TERM or a number", func(text string) error {
		var ok bool
		if sig, ok = plan.ParseSignal(text); !ok {
			return errors.New("want a signal such as TERM, or its number")
		}
		return nil
	})
	return cmd
}

func (c *cli) kill(ctx context.Context, args []string, sig syscall.Signal) error {
	pod, rest, err := c.findPod("kill", args)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return c.daemon.Signal(ctx, pod, "", sig)
	}
	return c.daemon.Signal(ctx, pod, rest[0], sig)
}
