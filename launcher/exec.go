package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"

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

// execOptions are the flags of `exec`. What is empty is the app's.
type execOptions struct {
	tty                    bool
	user, group, directory string
	env                    []pods.Environment
}

// execCommand is `exec`.
func execCommand(c *cli) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec POD [APP] -- CMD…",
		Short: "run a command in an app",
		Long: `exec runs a command with the app's user, working directory and environment, unless options name others.
With --tty the command has a terminal of its own; it never has the caller's.`,
		Example:           "  launcher exec --tty web -- sh",
		ValidArgsFunction: c.completePods(1, true),
		Annotations:       map[string]string{exitStatusAnnotation: "The command's; 125 if the launcher or the stager could not run it, 126 if it is not executable, 127 if it is not there."},
		RunE:              func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args, o) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command its own terminal")
	flags.BoolP("interactive", "i", false, "for the fingers of podman's users: a command always has the caller's stdin")
	flags.FuncP("env", "e", "set a variable, `NAME=VALUE`, or pass the caller's on, NAME", func(text string) error {
		e, err := parseEnv(text)
		o.env = append(o.env, pods.Environment(e))
		return err
	})
	flags.FuncP("user", "u", "run as `USER[:GROUP]`, names or numbers", func(text string) error {
		o.user, o.group, _ = strings.Cut(text, ":")
		if o.user == "" {
			return errors.New("want USER[:GROUP]")
		}
		return nil
	})
	flags.StringVarP(&o.directory, "workdir", "w", "", "the working `DIRECTORY`")
	return cmd
}

// execute runs a command with the app's user, working directory and
// environment, or those of the options. Its exit status is the command's.
func (c *cli) execute(cmd *cobra.Command, args []string, o execOptions) error {
	dashes := cmd.ArgsLenAtDash()
	if dashes < 1 || dashes > 2 || dashes == len(args) {
		return usageError{"exec: want POD [APP] -- CMD…"}
	}
	if err := inUTF8("exec", append(slices.Clone(args[dashes:]), o.user, o.group, o.directory)); err != nil {
		return err
	}
	code, err := c.exec(args[:dashes], args[dashes:], o)
	if err != nil {
		c.say("exec: " + err.Error() + nextStep(err))
		code = exitImpossible
	}
	if code != 0 {
		return exitError{code}
	}
	return nil
}

func (c *cli) exec(target, command []string, o execOptions) (int, error) {
	pod, names, err := c.findPod("exec", target)
	if err != nil {
		return 0, err
	}
	a, err := app(pod, names)
	if err != nil {
		return 0, err
	}
	settings, err := json.Marshal(o.settings(a, command))
	if err != nil {
		return 0, err
	}
	if o.tty && c.hasKeyboard() {
		code, _, err := c.callByKeyboard(pod, "ends the command", [2]*os.File{os.Stdout, os.Stderr}, settings, "run", a.Name)
		return code, err
	}
	defer c.keepTerminal()()
	if o.tty {
		defer c.rawOutput()()
	}
	return pod.Call(c.stdio(), settings, "run", a.Name)
}

// settings are those of a command in the app.
func (o *execOptions) settings(a pods.App, command []string) runSettings {
	s := runSettings{
		Exec:             command,
		User:             a.User,
		Group:            a.Group,
		SupplementaryGID: a.SupplementaryGID,
		WorkingDirectory: a.WorkingDirectory,
		TTY:              o.tty,
	}
	if o.user != "" {
		s.User = o.user
	}
	if o.group != "" {
		s.Group, s.SupplementaryGID = o.group, nil
	}
	if o.directory != "" {
		s.WorkingDirectory = o.directory
	}
	env := slices.Clone(a.Environment)
	for _, e := range o.env {
		env = slices.DeleteFunc(env, func(old pods.Environment) bool { return old.Name == e.Name })
		env = append(env, e)
	}
	s.Environment = execEnvironment(env, o.tty)
	return s
}

// execEnvironment adds the caller's TERM for a command with a terminal, unless the app has one.
func execEnvironment(env []pods.Environment, tty bool) []pods.Environment {
	has := slices.ContainsFunc(env, func(e pods.Environment) bool { return e.Name == "TERM" })
	if kind := os.Getenv("TERM"); tty && !has && kind != "" {
		return append(slices.Clone(env), pods.Environment{Name: "TERM", Value: kind})
	}
	return env
}
