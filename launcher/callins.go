package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// exitImpossible says that exec could not be done by the launcher, as 126 and
// 127 do for the command; a shell's numbers.
const exitImpossible = 125

// appStatus is what the status call-in says of an app.
type appStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Ending bool   `json:"ending"`
	Code   int    `json:"exitCode"`
	Reason string `json:"exitReason"`
}

// runStatus is `status`: the call-in's own words with --json, else a table.
func runStatus(_ context.Context, c *cli, args []string) error {
	isolators := false
	rest, err := c.parse("status", args, func(f *flag.FlagSet) {
		f.BoolVar(&isolators, "isolators", false, "what became of the isolators of an app, as JSON")
	})
	if err != nil {
		return err
	}
	pod, rest, err := c.findPod("status", rest)
	if err != nil {
		return err
	}
	if isolators && len(rest) <= 1 {
		a, err := app(pod, rest)
		if err != nil {
			return err
		}
		return pod.Become("status", "--isolators", a.Name)
	}
	if len(rest) > 0 {
		return usageError{"status: want one POD, or --isolators POD [APP]"}
	}
	if c.json {
		return pod.Become("status")
	}
	data, err := c.capture(pod, "status")
	if err != nil {
		return err
	}
	var apps map[string]appStatus
	if err := json.Unmarshal(data, &apps); err != nil {
		return fmt.Errorf("read status of pod %q: %w", pod.Plan.Name, err)
	}
	return c.printStatus(pod, apps)
}

// capture runs a call-in and returns what it wrote to its stdout.
func (c *cli) capture(pod *pods.Pod, name string) ([]byte, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	var out bytes.Buffer
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, read)
		copied <- err
	}()
	stdio := c.stdio()
	stdio[1] = write
	code, err := pod.Call(stdio, nil, name)
	_ = write.Close()
	if err != nil {
		return nil, err
	}
	if err := <-copied; err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, exitError{code}
	}
	return out.Bytes(), nil
}

func (c *cli) printStatus(pod *pods.Pod, apps map[string]appStatus) error {
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "APP\tSTATE\tPID\tEXIT\tREASON")
	for _, name := range appNames(pod) {
		a := apps[name]
		switch {
		case a.Exited:
			fmt.Fprintf(out, "%s\texited\t-\t%d\t%s\n", name, a.Code, dash(a.Reason))
		case a.Ending:
			fmt.Fprintf(out, "%s\tending\t-\t-\t-\n", name)
		case a.PID == 0:
			fmt.Fprintf(out, "%s\tstarting\t-\t-\t-\n", name)
		default:
			fmt.Fprintf(out, "%s\trunning\t%d\t-\t-\n", name, a.PID)
		}
	}
	return out.Flush()
}

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

// runExec is `exec`: a command with the app's user, folder and environment.
// Its exit status is the command's.
func runExec(_ context.Context, c *cli, args []string) error {
	tty := false
	rest, err := c.parse("exec", args, func(f *flag.FlagSet) {
		f.BoolVar(&tty, "tty", false, "give the command a terminal of its own")
	})
	if err != nil {
		return err
	}
	dashes := slices.Index(rest, "--")
	if dashes < 1 || dashes > 2 || dashes == len(rest)-1 {
		return usageError{"exec: want POD [APP] -- CMD…"}
	}
	if err := inUTF8("exec", rest[dashes+1:]); err != nil {
		return err
	}
	code, err := c.exec(rest[:dashes], rest[dashes+1:], tty)
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

// execEnvironment adds the caller's kind of terminal where there is to be one.
func execEnvironment(env []pods.Environment, tty bool) []pods.Environment {
	has := slices.ContainsFunc(env, func(e pods.Environment) bool { return e.Name == "TERM" })
	if kind := os.Getenv("TERM"); tty && !has && kind != "" {
		return append(slices.Clone(env), pods.Environment{Name: "TERM", Value: kind})
	}
	return env
}

// keepTerminal notes the state of the caller's terminal, which a call-in makes
// raw where it needs to, and returns what brings the state back even when the
// call-in was killed.
func (c *cli) keepTerminal() (restore func()) {
	fd := int(c.stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return func() {} // no terminal
	}
	return func() { _ = term.Restore(fd, state) }
}

// rawOutput keeps the caller's terminal from turning the line ends of another one,
// which has made CR LF of them, into CR CR LF, until restore is called. Where stdin is
// the terminal the call-in makes it raw, output included.
func (c *cli) rawOutput() (restore func()) {
	out := int(os.Stdout.Fd())
	if term.IsTerminal(int(c.stdin.Fd())) {
		return func() {}
	}
	if group, err := unix.IoctlGetInt(out, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return func() {} // a change from the background would stop us
	}
	state, err := unix.IoctlGetTermios(out, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	raw := *state
	raw.Oflag &^= unix.OPOST
	if unix.IoctlSetTermios(out, unix.TCSETSW, &raw) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(out, unix.TCSETSW, state) }
}

// runAttach is `attach`: the app's output and, where it has an open stdin, its
// input, until it ends; then its exit status.
func runAttach(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("attach", args, nil)
	if err != nil {
		return err
	}
	pod, rest, err := c.findPod("attach", rest)
	if err != nil {
		return err
	}
	if len(rest) > 1 {
		return usageError{"attach: want POD [APP]"}
	}
	a, err := app(pod, rest)
	if err != nil {
		return err
	}
	if !term.IsTerminal(int(c.stdin.Fd())) {
		return pod.Become("attach", a.Name)
	}
	defer c.keepTerminal()()
	code, err := pod.Call(c.stdio(), nil, "attach", a.Name)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return err
}
