package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/signing"

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
	fmt.Fprintln(os.Stderr, "launcher:", oneLine(err)+nextStep(err))
	if errors.As(context.Cause(ctx), &interrupted) {
		return 128 + int(interrupted.signal)
	}
	return status
}

// nextStep returns a hint for the user after an error without its own hint.
func nextStep(err error) string {
	var unknown *daemon.UnknownKeyError
	switch {
	case errors.As(err, &unknown):
		if near := suggestions(unknown.Key, unknown.Known); len(near) > 0 {
			return fmt.Sprintf("; did you mean %q?", near[0])
		}
	case errors.Is(err, daemon.ErrNoStager):
		return "; import it with launcher image import STAGER.aci, or set defaultStagerImage"
	case errors.Is(err, images.ErrNotFound):
		return "; launcher image list lists the images, launcher image import FILE adds one, and docker://NAME means an " +
			"image of a registry"
	case errors.Is(err, signing.ErrUnknownKey):
		return "; launcher trust add KEY.asc trusts its key, as trustedKeys in the configuration does"
	case errors.Is(err, images.ErrUnsigned):
		return "; import it again with its signature beside it, as FILE.asc"
	case errors.Is(err, pods.ErrEnded):
		return "; launcher logs shows the output, launcher restart starts a new pod like it"
	case errors.Is(err, pods.ErrNotFound):
		return "; launcher ps --all lists the pods"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return "; the launcher needs root"
	}
	return ""
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
	if known, ok := elsewhere()[args[0]]; ok && !cmd.HasParent() {
		return usageError{text + "; did you mean " + known + "?"}
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usageError{text + "; did you mean " + strings.Join(near, " or ") + "?"}
	}
	return usageError{text + "; " + cmd.CommandPath() + " --help lists the commands"}
}

// elsewhere maps commands of podman and docker to commands that do the same here.
func elsewhere() map[string]string {
	return map[string]string{
		"build": "aci build, another program", "export": "cp or image export", "images": "image list",
		"import": "image import", "load": "image import",
		"login": "docker login or skopeo login; the launcher uses their credentials", "pull": "image import docker://NAME",
		"tag": "imagePins in the configuration, because an image has the name of its manifest", "rmi": "image rm",
		"save": "image export", "start": "run or restart",
	}
}

// otherwise maps options of podman's and docker's run to how the launcher does the same.
func otherwise() map[string]string {
	return map[string]string{
		"init": "the stager is the init process of every pod",
	}
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
		if hint, ok := otherwise()[unknown.GetSpecifiedName()]; ok && cmd.Name() == "run" {
			return usageError{text + "; " + hint}
		}
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
		return usageError{text + "; " + cmd.CommandPath() + " --help lists the options" + forTheApp(cmd)}
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
