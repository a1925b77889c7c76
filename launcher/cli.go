package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// cli is what a command works with.
type cli struct {
	configFile, state string         // --config, --state
	daemon            *daemon.Daemon // that begin has opened
	stdin             *os.File
	stdout, stderr    io.Writer
	json              bool // --json, for a command that prints
	escapes           bool // control characters of the apps' output on a terminal become \xNN
}

// usageError is an error in the command line: exit status 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// exitError ends the program with the exit status of a call-in or a stager, and without a
// message.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// exitStatus is the one place where an error becomes text and an exit status.
func exitStatus(ctx context.Context, err error) int {
	var usage usageError
	var exit exitError
	var failed *daemon.CallInError
	var interrupted interruption
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.As(err, &failed) {
		code := 0
		for _, one := range joined.Unwrap() {
			code = cmp.Or(code, exitStatus(ctx, one))
		}
		return code
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &failed):
		_, _ = plaintext.NewWriter(os.Stderr).Write([]byte(failed.Words)) // what the call-in has said
		return failed.Code
	case errors.As(err, &usage), errors.Is(err, daemon.ErrSeveralApps):
		fmt.Fprintln(os.Stderr, "launcher:", oneLine(err))
		return 2
	}
	status := 1
	if failed := (*pods.StartError)(nil); errors.As(err, &failed) {
		printOutput(os.Stderr, failed.Output)
		status = cmp.Or(failed.NotExecuted, status)
	}
	fmt.Fprintln(os.Stderr, "launcher:", oneLine(err))
	if errors.As(context.Cause(ctx), &interrupted) {
		return 128 + int(interrupted.signal)
	}
	return status
}

// group returns a command that has subcommands and does nothing itself.
func group(name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " COMMAND", Short: short, Args: needCommand, RunE: needCommand,
		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(subcommands...)
	return cmd
}

// needCommand is the error of a group of commands if the first argument is not one of them.
// Cobra looks for them before.
func needCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		cmd.SetOut(cmd.ErrOrStderr())
		_ = cmd.Help() // only the description fails to appear
		return usageError{commandName(cmd) + "no command; want " + alternatives(cmd)}
	}
	text := fmt.Sprintf("%sunknown command %s", commandName(cmd), quoted(args[0]))
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usageError{text + "; did you mean " + strings.Join(near, " or ") + "?"}
	}
	return usageError{text + "; " + cmd.CommandPath() + " --help lists the commands" + besidePodmans(cmd)}
}

// besidePodmans adds to an error of a word that the launcher does not know where to find what podman calls so.
func besidePodmans(cmd *cobra.Command) string {
	if cmd.HasParent() && cmd.Name() != "run" {
		return ""
	}
	return "; docs/from-podman.md has those of podman and docker"
}

// alternatives lists a group's commands as a sentence has them.
func alternatives(cmd *cobra.Command) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return strings.Join(names, ", ")
}

// commandName begins an error of a command: "image import: ", and "" for the program itself.
func commandName(cmd *cobra.Command) string {
	_, name, sub := strings.Cut(cmd.CommandPath(), " ")
	if !sub {
		return ""
	}
	return name + ": "
}

// flagError makes a usage error of an error of pflag, and proposes the flag that may be meant.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() { // the flag is not a group's; perhaps its command is misspelt
		if word := firstWord(cmd.Flags().Args()); word != "" {
			return needCommand(cmd, []string{word})
		}
	}
	text := commandName(cmd) + err.Error()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		near := suggestions(unknown.GetSpecifiedName(), names)
		if unknown.GetSpecifiedShortnames() == "" && len(near) > 0 { // a letter is like any other
			return usageError{text + "; did you mean --" + strings.Join(near, " or --") + "?"}
		}
		return usageError{text + "; " + cmd.CommandPath() + " --help lists the options" + forTheApp(cmd) + besidePodmans(cmd)}
	}
	return usageError{text}
}

// suggestions returns those of the names that a misspelt word may mean. Cobra has them for commands; other
// names are compared in the same way.
func suggestions(word string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return all.SuggestionsFor(word)
}

// forTheApp adds to an error of a flag what a command line for the app needs.
func forTheApp(cmd *cobra.Command) string {
	if name := cmd.Name(); name == "run" || name == "exec" {
		return ", and those of the app come after --"
	}
	return ""
}

func firstWord(args []string) string {
	for _, arg := range args {
		if arg != "" && !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// wants returns a check of the number of arguments: at least low, and at most high unless it is
// negative. Text describes the arguments.
func wants(low, high int, text string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || (high >= 0 && len(args) > high) {
			return usageError{commandName(cmd) + "want " + text}
		}
		return nil
	}
}
