package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"

	"github.com/appc/spec/schema/types"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// runOptions is the command line of `run`.
type runOptions struct {
	detach bool
	remove bool
	// exitPolicy and restart are values of the same keys of stagerConfig, "" for the configuration's.
	exitPolicy, restart string
	name                string
	volumes             volumeFlags
	net                 netFlags
	source              string   // a pod manifest's file or an image
	args                []string // for an image's app
}

// volumeFlags collects --volume NAME=PATH.
type volumeFlags map[string]string

// String implements pflag.Value.
func (v volumeFlags) String() string { return "" }

// Type implements pflag.Value.
func (v volumeFlags) Type() string { return "NAME=PATH" }

// Set implements pflag.Value.
func (v volumeFlags) Set(text string) error {
	name, path, ok := strings.Cut(text, "=")
	if !ok || name == "" || !strings.HasPrefix(path, "/") {
		return errors.New("want NAME=/PATH")
	}
	if _, err := types.NewACName(name); err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	if !utf8.ValidString(path) { // JSON would change it
		return errors.New("the path is not UTF-8")
	}
	if _, twice := v[name]; twice {
		return fmt.Errorf("volume %q is given twice", name)
	}
	v[name] = path
	return nil
}

// runCommand is `run`.
func runCommand(c *cli) *cobra.Command {
	o := runOptions{volumes: volumeFlags{}}
	cmd := &cobra.Command{
		Use:   "run POD.json | IMAGE [-- ARGS…]",
		Short: "start a pod",
		Long: `run starts the pod of a pod manifest, or a pod of one app from an image, and shows the output of its
apps. It ends when all apps have ended, with the first exit code that is not 0; --exit-policy never
keeps the pod until a signal stops it. SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the pod.

With --detach it prints the pod's UUID when all apps have been started, and the pod stays until it is stopped.

The arguments after -- follow those of the image.`,
		Annotations: map[string]string{exitStatusAnnotation: "The pod's: the first exit code of an app that is not 0; 130 after SIGINT; 1 if the pod does not start."},
		Example: `  launcher run --detach --name web --volume data=/srv/web example.com/web:1.0
  launcher run pod.json`,
		ValidArgsFunction: c.completeImages(1, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return c.run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when the pod is up")
	flags.BoolVar(&o.remove, "rm", false, "delete the pod with its logs when it ends")
	flags.StringVar(&o.name, "name", "", "the pod's `NAME`")
	flags.VarP(o.volumes, "volume", "v", "mount the host's path as a volume, `NAME=PATH`")
	flags.Func("exit-policy", "when the pod ends by itself: `never|all|failure`", oneOf(&o.exitPolicy, "never", "all", "failure"))
	flags.Func("restart", "whether an app that has ended is restarted: `never|on-failure|always`", oneOf(&o.restart, "never", "on-failure", "always"))
	flags.Var(&o.net, "net", "connect to a network of the configuration, `NETWORK[:OPTIONS]`; \"host\" for the host's network, \"none\" for only a loopback device")
	return cmd
}

// oneOf returns a flag's function that accepts one of the words.
func oneOf(value *string, words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return errors.New("want " + strings.Join(words, ", "))
		}
		*value = text
		return nil
	}
}

// parse checks the command line.
func (o *runOptions) parse(cmd *cobra.Command, args []string) error {
	if o.name != "" && !podplan.IsName(o.name) {
		return usageError{fmt.Sprintf("run: --name %s: want letters, digits, '.', '_' and '-', %d at most, the first a letter or digit", printable(o.name), podplan.MaxName)}
	}
	words, rest := args, []string(nil)
	if dashes := cmd.ArgsLenAtDash(); dashes >= 0 {
		words, rest = args[:dashes], args[dashes:]
	}
	if len(words) == 0 {
		return usageError{"run: want POD.json or IMAGE [-- ARGS…]"}
	}
	if len(words) > 1 {
		return usageError{fmt.Sprintf("run: unexpected %q; arguments for the app come after --", words[1])}
	}
	o.source, o.args = words[0], rest
	return inUTF8("run", o.args)
}

// run starts a pod. With --detach it prints the pod's UUID when it is up; if the UUID cannot be
// printed, the pod is deleted. Otherwise it shows the pod's output until it ends, see runHere.
func (c *cli) run(ctx context.Context, o runOptions) error {
	if err := o.net.check(c.networks); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("run: only root can start a pod")
	}
	store, err := c.pods()
	if err != nil {
		return err
	}
	pod, err := c.createPod(store, o)
	if err != nil {
		return err
	}
	// A write to a pipe without a reader must be an error, which stops the pod. With
	// SIGPIPE this process would end and the pod would not be stopped.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	defer signal.Stop(broken)
	pod.LastLines = lastLines
	if !o.detach {
		return c.runHere(ctx, store, pod, o)
	}
	if err := pod.Detach(ctx, c.monitor(pod.Dir)); err != nil {
		return err
	}
	if err := c.printStarted(pod); err != nil {
		return errors.Join(err, store.Remove(ctx, pod, true))
	}
	return nil
}

// podStarted is what `run --json` prints.
type podStarted struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	PID  int    `json:"pid"` // the stager's
}

func (c *cli) printStarted(pod *pods.Pod) error {
	if c.json {
		return c.printJSON(podStarted{pod.Plan.UUID, pod.Plan.Name, pod.State.Stager.PID})
	}
	_, err := fmt.Fprintln(c.stdout, pod.Plan.UUID)
	return err
}
