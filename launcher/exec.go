package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// exitImpossible is the exit status if exec fails before the command is executed.
// 126 and 127 are the command's, as in a shell.
const exitImpossible = 125

// runSettings are the settings of a `run` call-in.
type runSettings struct {
	Exec             []string           `json:"exec"`
	User             string             `json:"user"`
	Group            string             `json:"group"`
	SupplementaryGID []int              `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string             `json:"workingDirectory,omitempty"`
	Environment      []pods.Environment `json:"environment,omitempty"`
	TTY              bool               `json:"tty,omitempty"`
}

// execCommand is `exec`.
func execCommand(c *cli) *cobra.Command {
	tty := false
	cmd := &cobra.Command{
		Use:   "exec POD [APP] -- CMD…",
		Short: "run a command in an app",
		Long: `exec runs a command with the app's user, working directory and environment. With --tty the
command has a terminal of its own; it never has the caller's.`,
		Example:           "  launcher exec --tty web -- sh",
		ValidArgsFunction: c.completePods(1, true),
		Annotations:       map[string]string{exitStatusAnnotation: "The command's; 125 if the launcher or the stager could not run it, 126 if it is not executable, 127 if it is not there."},
		RunE:              func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args, tty) },
	}
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command its own terminal")
	return cmd
}

// execute runs a command with the app's user, working directory and
// environment. Its exit status is the command's.
func (c *cli) execute(cmd *cobra.Command, args []string, tty bool) error {
	dashes := cmd.ArgsLenAtDash()
	if dashes < 1 || dashes > 2 || dashes == len(args) {
		return usageError{"exec: want POD [APP] -- CMD…"}
	}
	if err := inUTF8("exec", args[dashes:]); err != nil {
		return err
	}
	code, err := c.exec(args[:dashes], args[dashes:], tty)
	if err != nil {
		fmt.Fprintln(c.stderr, "launcher: exec:", oneLine(err))
		code = exitImpossible
	}
	if code != 0 {
		return exitError{code}
	}
	return nil
}

func (c *cli) exec(target, command []string, tty bool) (int, error) {
	pod, names, err := c.findPod("exec", target)
	if err != nil {
		return 0, err
	}
	a, err := app(pod, names)
	if err != nil {
		return 0, err
	}
	settings, err := json.Marshal(runSettings{
		Exec:             command,
		User:             a.User,
		Group:            a.Group,
		SupplementaryGID: a.SupplementaryGID,
		WorkingDirectory: a.WorkingDirectory,
		Environment:      execEnvironment(a.Environment, tty),
		TTY:              tty,
	})
	if err != nil {
		return 0, err
	}
	defer c.keepTerminal()()
	if tty {
		defer c.rawOutput()()
	}
	return pod.Call(c.stdio(), settings, "run", a.Name)
}

// execEnvironment adds the caller's TERM for a command with a terminal, unless the app has one.
func execEnvironment(env []pods.Environment, tty bool) []pods.Environment {
	has := slices.ContainsFunc(env, func(e pods.Environment) bool { return e.Name == "TERM" })
	if kind := os.Getenv("TERM"); tty && !has && kind != "" {
		return append(slices.Clone(env), pods.Environment{Name: "TERM", Value: kind})
	}
	return env
}
