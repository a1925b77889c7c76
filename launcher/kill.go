package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"

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
that runs. The pod goes on as its policies say; stop stops it.`,
		Args:              wants(1, 2, "POD [APP]"),
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.kill(cmd.Context(), args, sig) },
	}
	cmd.Flags().FuncP("signal", "s", "the `SIGNAL`, a name such as TERM or a number", func(text string) (err error) {
		sig, err = parseSignal(text)
		return err
	})
	return cmd
}

// parseSignal reads a signal's name, with or without SIG, or number.
func parseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, errors.New("want a signal such as TERM, or its number")
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
