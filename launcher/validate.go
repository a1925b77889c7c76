package main

import (
	"context"
	"errors"
	"fmt"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// validateCommand is `validate`.
func validateCommand(c *cli) *cobra.Command {
	var net netFlags
	cmd := &cobra.Command{
		Use:   "validate POD.json | IMAGE",
		Short: "check a pod without starting it: what would be refused, changed or ignored",
		Long: `validate plans the pod as run does, and then as the reference stager of this version would on this machine.
It prints a line for each warning and each isolator, and starts nothing. What the stager image adds to the reference
stager is not checked. The exit status is 1 if the pod would be refused.`,
		Args:              wants(1, 1, "POD.json or IMAGE"),
		ValidArgsFunction: c.completeImages(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.validate(cmd.Context(), args[0], net) },
	}
	takeOtherNames(cmd.Flags())
	net.declare(cmd.Flags())
	return cmd
}

func (c *cli) validate(ctx context.Context, source string, net netFlags) error {
	if err := net.check("validate", c.daemon.Networks()); err != nil {
		return err
	}
	o := runOptions{source: source, net: net}
	asked, err := o.pod("validate")
	if err != nil {
		return err
	}
	asked.Options.DefaultExit = ""
	defer untilInterrupted(ctx)()
	found, warnings, err := c.daemon.Validate(ctx, asked)
	if err != nil {
		c.warn(warnings...) // a misspelt key may be the cause
		return err
	}
	if c.json {
		return c.printJSON(found)
	}
	return c.printValidated(found)
}

func (c *cli) printValidated(v daemon.Validation) error {
	var errs []error
	line := func(format string, args ...any) {
		errs = append(errs, c.line(fmt.Sprintf(format, args...)))
	}
	for _, warning := range v.Warnings {
		line("warning: %s", printable(warning))
	}
	for _, i := range v.Isolators {
		of, why := "pod", ""
		if i.App != "" {
			of = fmt.Sprintf("app %q", i.App)
		}
		if i.Why != "" {
			why = ": " + printable(i.Why)
		}
		line("%s: isolator %s is %s%s", of, printable(i.Name), i.Fate, why)
	}
	noun := "apps"
	if len(v.Apps) == 1 {
		noun = "app"
	}
	line("pod %q with %d %s can be started", v.Name, len(v.Apps), noun)
	return errors.Join(errs...)
}
