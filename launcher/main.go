// Command launcher is a Kurma daemon for one machine: it keeps App Container
// images, starts pods with a stager image and calls into them.
//
//	launcher [--config FILE] [--state DIR] COMMAND [ARGUMENTS]
//
// README.md beside this file has the commands, their JSON and the configuration.
//
// Exit status: 0, or 1 and one line on stderr, or 2 for a command line that
// makes no sense. A call-in's (status, logs, exec, attach, call) and a stager's in
// the foreground (run) are handed on; 125 says that exec itself could not be done.
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
		{"image", "import FILE… | list | rm IMAGE…", "keep images", runImage},
		{"run", "[--detach] [--name N] [--volume NAME=PATH]… [--net host] POD.json | IMAGE [-- ARGS…]", "start a pod; logs --follow shows what its apps write", runRun},
		{"ps", "", "list pods", runPS},
		{"status", "[--isolators] POD [APP]", "show the apps of a pod", runStatus},
		{"logs", "[--follow] [--tail N] [--since T] [--timestamps] [--stream S] POD [APP]", "show what an app wrote", runLogs},
		{"exec", "[--tty] POD [APP] -- CMD…", "run a command in an app", runExec},
		{"attach", "POD [APP]", "connect to an app's input and output", runAttach},
		{"call", "POD NAME [ARGS…]", "execute a call-in of the pod's stager by its name", runCall},
		{"stop", "POD…", "stop pods and take them down", runStop},
		{"gc", "", "clear away what killed pods and imports left", runGC},
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

// keepDescriptors keeps what the caller has left open beside stdio from all that this
// process starts or becomes: a pod would hold it for as long as it lives. A monitor
// goes on with the two that it was started with.
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

// helpCommand says what the command is for, whose name may be followed by that of a
// part of it.
func helpCommand(w io.Writer, name string) {
	name, _, _ = strings.Cut(name, " ")
	for _, cmd := range commands() {
		if cmd.name == name {
			fmt.Fprintf(w, "usage: launcher %s %s\n%s\n\n", name, cmd.usage, cmd.summary)
		}
	}
}
