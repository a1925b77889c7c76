// Command launcher is a Kurma daemon for one machine: it keeps App Container
// images, starts pods with a stager image and calls into them.
//
//	launcher [--config FILE] [--state DIR] [--json] COMMAND [ARGUMENTS]
//
// README.md beside this file has the commands, docs/launcher.md their JSON and the configuration.
//
// Exit status: 0; 1 and one line on stderr for an error; 2 for a usage error. status, logs, exec, attach and call
// return the call-in's status, run in the foreground returns the stager's, or with --interactive the code that wait
// prints, and 126 or 127 if an app's program cannot be executed or is missing. 125 is an error of exec before its
// command was executed. A launcher that a signal has interrupted returns 128 plus its number, 130 for SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"

	"kurma.io/stager/internal/version"
	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The groups of commands in the help.
const (
	podGroup     = "pods"
	volumeGroup  = "volumes"
	imageGroup   = "images"
	networkGroup = "networks"
	otherGroup   = "others"
)

// commands is the table of commands. To add a command, add a file with a function that
// returns it, and a row here.
func commands(c *cli) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		podGroup: {
			runCommand(c), psCommand(c), statusCommand(c), logsCommand(c), execCommand(c), attachCommand(c),
			callCommand(c), topCommand(c), statsCommand(c), metricsCommand(c), eventsCommand(c), cpCommand(c), stopCommand(c),
			killCommand(c), waitCommand(c), restartCommand(c), rmCommand(c), gcCommand(c),
			inspectCommand(c), generateCommand(c), validateCommand(c),
		},
		imageGroup:   {imageCommand(c), trustCommand(c)},
		volumeGroup:  {volumeCommand(c)},
		networkGroup: {networkCommand(c)},
		otherGroup:   {versionCommand(c), completionCommand(c), manCommand(c), monitorCommand(c), holdCommand()},
	}
}

func main() {
	ctx, stop := interruptible(interrupts()...)
	defer stop()
	c := &cli{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	root := rootCommand(c)
	root.SetArgs(os.Args[1:])
	os.Exit(exitStatus(ctx, root.ExecuteContext(ctx)))
}

// rootCommand returns the program's command line.
func rootCommand(c *cli) *cobra.Command {
	root := group("launcher", "run pods of App Container images with a stager image")
	root.Use, root.Version = "launcher COMMAND", version.String()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true // there is our own, for the same shells as the packages
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return c.begin() }
	flags := root.PersistentFlags()
	flags.Func("config", "the configuration `FILE`; "+daemon.DefaultConfigFile+" if that exists",
		notEmpty(&c.configFile, "want a file"))
	flags.Func("state", "the `DIR` of pods and images if the configuration names none; else "+daemon.DefaultState,
		notEmpty(&c.state, "want a folder"))
	flags.BoolVar(&c.json, "json", false, "print JSON, one object a line")
	addCommands(root, commands(c))
	root.SetHelpCommand(helpCommand())
	return root
}

// addCommands adds the commands in their groups.
func addCommands(root *cobra.Command, all map[string][]*cobra.Command) {
	for _, g := range []cobra.Group{
		{ID: podGroup, Title: "Pods:"},
		{ID: imageGroup, Title: "Images:"},
		{ID: volumeGroup, Title: "Volumes:"},
		{ID: networkGroup, Title: "Networks:"},
		{ID: otherGroup, Title: "Others:"},
	} {
		root.AddGroup(&g)
		for _, cmd := range all[g.ID] {
			cmd.GroupID = g.ID
			root.AddCommand(cmd)
		}
	}
}

// notEmpty returns a flag's function that refuses "", which is often a variable that is not set: the default is
// not what was meant.
func notEmpty(value *string, want string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New(want)
		}
		*value = text
		return nil
	}
}

// begin prepares what a command works with. Commands that need neither configuration nor
// state override it with begins.
func (c *cli) begin() error {
	if err := errors.Join(checkDescriptors(), keepDescriptors()); err != nil {
		return err
	}
	config, err := daemon.ReadConfig(c.configFile)
	if err != nil {
		return err
	}
	c.daemon, err = daemon.Open(config, daemon.Options{State: c.state, Programs: c.programs(), Progress: c.progress})
	return err
}

// begins is the PersistentPreRunE of a command that works without a configuration.
func begins(*cobra.Command, []string) error { return nil }

// checkDescriptors refuses a limit with which a command would fail at any place.
func checkDescriptors() error {
	const need = 64
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < need {
		return fmt.Errorf("the limit of open files (ulimit -Hn) is %d: the launcher needs at least %d", limit.Cur, need)
	}
	return nil
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

// interruption is the cause of a context that a signal has ended.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + unix.SignalName(i.signal) }

// interrupts are the signals that end a command.
func interrupts() []os.Signal {
	return []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}
}

// letSignalsEnd lets a signal end this process at once.
func letSignalsEnd() { signal.Reset(interrupts()...) }

// untilInterrupted lets a second signal end the launcher at once, until done is called; the first signal ends ctx. It
// is for work such as an import, if gc removes all leftovers of a killed launcher, and for a copy, of which a part may
// stay.
func untilInterrupted(ctx context.Context) (done func()) {
	stop := context.AfterFunc(ctx, letSignalsEnd)
	return func() { stop() }
}

// notify is signal.Notify without the signals that this process was started to ignore, as nohup(1) and a shell's & have
// it ignore SIGHUP and SIGINT: Notify ends that.
func notify(to chan<- os.Signal, signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// interruptible returns a context that the first of the signals ends. stop releases the
// signals.
func interruptible(signals ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 1)
	notify(received, signals)
	go func() {
		select {
		case sig := <-received:
			cancel(interruption{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(received)
		cancel(context.Canceled)
	}
}
