package main

import (
	"fmt"
	"path/filepath"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// callCommand is `call`.
func callCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "call POD NAME [ARGS…]",
		Short: "execute a call-in of the pod's stager by its name",
		Long: `call executes the call-in /opt/stager/NAME of the pod's stager with the caller's stdin, stdout and
stderr, for call-ins that the launcher does not know. Options of the launcher come before POD; all
that follows NAME is the call-in's.`,
		Annotations:       map[string]string{exitStatusAnnotation: "The call-in's."},
		ValidArgsFunction: c.completePods(1, false),
		RunE:              func(_ *cobra.Command, args []string) error { return c.call(args) },
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// call is a call-in by its name, for one that the launcher does not know
// because a fork added it to its stager. The arguments, stdin, stdout, stderr and the
// exit status are the call-in's.
func (c *cli) call(rest []string) error {
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
	return c.become(pod, name, rest[2:]...)
}

// become turns the launcher into a call-in. With a terminal as stdin it starts the
// call-in and waits for it instead, to restore the terminal even if the call-in is killed.
func (c *cli) become(pod *pods.Pod, name string, args ...string) error {
	if !term.IsTerminal(int(c.stdin.Fd())) {
		return pod.Become(name, args...)
	}
	defer c.keepTerminal()()
	code, err := pod.Call(c.stdio(), nil, name, args...)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return err
}
