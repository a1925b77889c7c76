package main

import (
	"context"
	"os"
	"slices"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// exitImpossible is the exit status if exec fails before the command is executed.
// 126 and 127 are the command's, as in a shell.
const exitImpossible = 125

// execCommand is `exec`.
func execCommand(c *cli) *cobra.Command {
	var o daemon.Command
	var env envFlags
	var interactive bool
	cmd := &cobra.Command{
		Use:   "exec POD [APP] -- CMD…",
		Short: "run a command in an app",
		Long: `exec runs a command with the app's user, working directory and environment, unless options name others.
With --tty the command has its own terminal; it never gets the caller's terminal or another file of the caller. With
--interactive it reads the caller's stdin through a pipe, otherwise its stdin is empty.`,
		Example:           "  launcher exec --interactive --tty web -- sh\n  launcher exec -i web -- tar -x <files.tar",
		ValidArgsFunction: c.completePods(1, true),
		Annotations: map[string]string{exitStatusAnnotation: "The command's; 125 if the launcher or the stager " +
			"could not run it, 126 if it is not executable, 127 if it is missing."},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Environment = env.all()
			return c.execute(cmd, args, o, interactive)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.TTY, "tty", "t", false, "give the command its own terminal")
	flags.BoolVarP(&interactive, "interactive", "i", false, "pass your stdin to the command")
	env.declare(flags)
	declareUser(flags, &o.User, &o.Group)
	flags.StringVarP(&o.WorkingDirectory, "workdir", "w", "", "the working `DIRECTORY`")
	return cmd
}

// execute runs a command with the app's user, working directory and
// environment, or those of the options. Its exit status is the command's.
func (c *cli) execute(cmd *cobra.Command, args []string, o daemon.Command, interactive bool) error {
	dashes := cmd.ArgsLenAtDash()
	if dashes < 1 || dashes > 2 || dashes == len(args) {
		return usageError{"exec: want POD [APP] -- CMD…"}
	}
	if err := inUTF8("exec", append(slices.Clone(args[dashes:]), o.User, o.Group, o.WorkingDirectory)); err != nil {
		return err
	}
	o.Exec, o.Terminal = args[dashes:], os.Getenv("TERM")
	code, err := c.exec(cmd.Context(), args[:dashes], o, interactive)
	if err != nil {
		c.say("exec: " + err.Error())
		code = exitImpossible
	}
	return statusOf(code, nil)
}

func (c *cli) exec(ctx context.Context, target []string, o daemon.Command, interactive bool) (int, error) {
	pod, a, err := c.findApp("exec", target)
	if err != nil {
		return 0, err
	}
	call := func(ctx context.Context, caller daemon.Caller) (int, error) {
		caller.Name = "launcher: exec"
		return c.daemon.Exec(ctx, pod, a, o, caller)
	}
	if o.TTY && interactive && c.hasKeyboard() {
		code, _, err := c.callByKeyboard(ctx, "ends the command", call)
		return code, err
	}
	stdin := c.stdin
	if !interactive {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return 0, err
		}
		defer stdin.Close()
	}
	if o.TTY {
		defer c.rawOutput(stdin)()
	}
	return c.makeCall(ctx, stdin, call)
}
