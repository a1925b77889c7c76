package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"

	"github.com/appc/spec/schema/types"
	"golang.org/x/sys/unix"
)

// runOptions is the command line of `run`.
type runOptions struct {
	detach  bool
	name    string
	volumes volumeFlags
	net     string
	source  string   // a pod manifest's file or an image
	args    []string // for an image's app
}

// volumeFlags collects --volume NAME=PATH.
type volumeFlags map[string]string

// String implements flag.Value.
func (v volumeFlags) String() string { return "" }

// Set implements flag.Value.
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

func parseRun(c *cli, args []string) (runOptions, error) {
	o := runOptions{volumes: volumeFlags{}}
	rest, err := c.parse("run", args, func(f *flag.FlagSet) {
		f.BoolVar(&o.detach, "detach", false, "return when the pod is up")
		f.StringVar(&o.name, "name", "", "the pod's `name`")
		f.Var(o.volumes, "volume", "mount the host's PATH as volume NAME, `NAME=PATH`")
		f.StringVar(&o.net, "net", "", "\"host\" to use the host's network")
	})
	if err != nil {
		return o, err
	}
	if o.name != "" && !podplan.IsName(o.name) {
		return o, usageError{fmt.Sprintf("run: --name %s: want letters, digits, '.', '_' and '-', %d at most, the first a letter or digit", printable(o.name), podplan.MaxName)}
	}
	if len(rest) == 0 || (o.net != "" && o.net != "host") {
		return o, usageError{"run: want POD.json or IMAGE [-- ARGS…], and --net host or none"}
	}
	o.source, rest = rest[0], rest[1:]
	if len(rest) > 0 && rest[0] != "--" {
		return o, usageError{fmt.Sprintf("run: unexpected %q; arguments for the app come after --", rest[0])}
	}
	if len(rest) > 0 {
		o.args = rest[1:]
	}
	return o, inUTF8("run", o.args)
}

// runRun is `run`: it starts a pod and prints its UUID when it is up. If the UUID
// cannot be printed, it stops the pod. Unless detached it waits until the pod ends and
// returns the stager's exit status.
func runRun(ctx context.Context, c *cli, args []string) error {
	o, err := parseRun(c, args)
	if err != nil {
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
	if o.detach {
		if err := pod.Detach(ctx, []string{os.Args[0], "monitor", pod.Dir}); err != nil {
			return err
		}
		if err := c.printStarted(pod); err != nil {
			return errors.Join(err, store.Stop(ctx, pod))
		}
		return nil
	}
	exit, err := pod.Run(ctx, false, func() error { return c.printStarted(pod) })
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return exitError{exit.Code}
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
