package main

import (
	"context"
	"fmt"
	"path/filepath"

	"kurma.io/stager/launcher/pods"

	"golang.org/x/term"
)

// runCall is `call`: a call-in by its name, for one that the launcher does not know
// because a fork added it to its stager. The arguments, stdin, stdout, stderr and the
// exit status are the call-in's.
func runCall(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("call", args, nil)
	if err != nil {
		return err
	}
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
