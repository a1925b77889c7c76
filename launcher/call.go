package main

import (
	"context"
	"fmt"
	"path/filepath"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// callCommand is `call`.
func callCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "call POD NAME [ARGS…]",
		Short: "execute a call-in of the pod's stager by its name",
		Long: `call executes the call-in /opt/stager/NAME of the pod's stager with the caller's stdin, stdout and
stderr, for call-ins that the launcher does not know. Options of the launcher come before POD; all arguments
after NAME are the call-in's.`,
		Annotations:       map[string]string{exitStatusAnnotation: "The call-in's."},
		ValidArgsFunction: c.completePods(1, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.call(cmd.Context(), args) },
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (c *cli) call(ctx context.Context, rest []string) error {
	if len(rest) < 2 {
		return usageError{"call: want POD NAME [ARGS…]"}
	}
	name := rest[1]
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return usageError{fmt.Sprintf("call: %q is not the name of a call-in", name)}
	}
	pod, _, err := c.findPod("call", rest)
	if err != nil {
		return err
	}
	return statusOf(c.makeCall(ctx, c.stdin, func(ctx context.Context, caller daemon.Caller) (int, error) {
		return c.daemon.Call(ctx, pod, caller, name, rest[2:]...)
	}))
}
