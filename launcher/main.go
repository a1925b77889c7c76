// Command launcher is a Kurma daemon for one machine: it keeps App Container
// images, starts pods with a stager image and calls into them.
//
//	launcher [--config FILE] [--state DIR] COMMAND [ARGUMENTS]
//
// README.md beside this file has the commands, their JSON and the configuration.
//
// Exit status: 0; 1 and one line on stderr for an error; 2 for a usage error. status,
// logs, exec, attach and call return the call-in's status, run in the foreground
// returns the stager's. 125 is an error of exec before its command was executed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// command is one of the program's commands.
type command struct {
	name, usage, summary string
	run                  func(ctx context.Context, c *cli, args []string) error
}

func commands() []command {
	return []command{
		{"image", "import FILE… | list | rm IMAGE…", "manage images", runImage},
		{"run", "[--detach] [--name N] [--volume NAME=PATH]… [--net host] POD.json | IMAGE [-- ARGS…]", "start a pod; logs --follow shows the output of its apps", runRun},
		{"ps", "", "list pods", runPS},
		{"status", "[--isolators] POD [APP]", "show the apps of a pod", runStatus},
		{"logs", "[--follow] [--tail N] [--since T] [--timestamps] [--stream S] POD [APP]", "show the output of an app", runLogs},
		{"exec", "[--tty] POD [APP] -- CMD…", "run a command in an app", runExec},
		{"attach", "POD [APP]", "connect to an app's input and output", runAttach},
		{"call", "POD NAME [ARGS…]", "execute a call-in of the pod's stager by its name", runCall},
		{"stop", "POD…", "stop pods and delete them with their logs", runStop},
		{"gc", "", "delete ended pods with their logs, and leftovers of interrupted commands", runGC},
		{"monitor", "", "", runMonitor}, // for run --detach only
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer stop()
	os.Exit(exitStatus(dispatch(ctx, os.Args[1:])))
}

func dispatch(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("launcher", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	configFile := flags.String("config", "", "")
	state := flags.String("state", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help(os.Stdout)
		return nil
	case err != nil:
		return usageError{err.Error()}
	case flags.NArg() == 0:
		help(os.Stderr)
		return usageError{"no command"}
	}
	for _, cmd := range commands() {
		if cmd.name == flags.Arg(0) {
			return start(ctx, cmd, *configFile, *state, flags.Args()[1:])
		}
	}
	return usageError{fmt.Sprintf("unknown command %q; launcher --help lists them", flags.Arg(0))}
}

func start(ctx context.Context, cmd command, configFile, state string, args []string) error {
	if err := keepDescriptors(); err != nil {
		return err
	}
	config, err := readConfig(configFile, state)
	if err != nil {
		return err
	}
	return cmd.run(ctx, &cli{config: config, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}, args)
}

// keepDescriptors makes every descriptor but stdin, stdout and stderr close-on-exec, so that
// no program that this process starts or becomes inherits it: a pod would hold it for as
// long as it lives. A monitor still uses the two that it was started with.
func keepDescriptors() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("make descriptors close-on-exec: %w", err) // before Linux 5.11
	}
	return nil
}

func help(w io.Writer) {
	fmt.Fprintln(w, "usage: launcher [--config FILE] [--state DIR] COMMAND")
	for _, cmd := range commands() {
		if cmd.summary != "" {
			fmt.Fprintf(w, "\n  %s %s\n      %s\n", cmd.name, cmd.usage, cmd.summary)
		}
	}
}

// helpCommand prints the usage of a command. A subcommand's name may follow the
// command's.
func helpCommand(w io.Writer, name string) {
	name, _, _ = strings.Cut(name, " ")
	for _, cmd := range commands() {
		if cmd.name == name {
			fmt.Fprintf(w, "usage: launcher %s %s\n%s\n\n", name, cmd.usage, cmd.summary)
		}
	}
}
