package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runOptions is the command line of `run`.
type runOptions struct {
	detach bool
	remove bool
	// exitPolicy, restart and gracePeriod are values of the same keys of stagerConfig, "" for the configuration's.
	exitPolicy, restart string
	gracePeriod         string
	name, hostname      string
	pull                string // daemon.PodOptions.Pull
	labels              map[string]string
	noHealth            bool
	cgroupParent        string
	volumes             volumeFlags
	net                 netFlags
	app                 podplan.AppOptions
	env                 envFlags
	appFlag             string   // a flag for an image's app that is given, "" for none
	source              string   // a pod manifest's file or an image
	args                []string // for an image's app
}

// declare declares the flags.
func (o *runOptions) declare(flags *pflag.FlagSet) {
	takeOtherNames(flags)
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when the pod is up")
	flags.BoolVar(&o.remove, "rm", false, "delete the pod with its logs and volumes when it ends")
	flags.Func("name", "the pod's `NAME`", notEmpty(&o.name, "want a name"))
	flags.Func("hostname", "the pod's hostname, `NAME`; without it the pod's name", func(text string) error {
		o.hostname = text
		return plan.CheckHostname(text)
	})
	flags.Func("cgroup-parent", "make the pod's cgroup in this `CGROUP`; \"own\" for the launcher's own, in a service "+
		"with Delegate=yes", notEmpty(&o.cgroupParent, "want a cgroup"))
	flags.Func("label", "give the pod a label, `KEY[=VALUE]`, by which ps --filter finds it", o.addLabel)
	flags.FuncP("volume", "v", "mount at a path of each app a named volume, `VOLUME:/TARGET`[:ro], or the host's path, "+
		"/PATH:/TARGET[:ro]; or the host's path as the pod's volume, NAME=/PATH", o.volumes.add)
	flags.Func("tmpfs", "mount an empty folder at a path of each app, `/TARGET[:mode=MODE]`; on the disk, until the pod "+
		"ends", o.volumes.addEmpty)
	flags.Func("exit-policy", "when the pod ends by itself: `"+strings.Join(daemon.ExitPolicies(), "|")+"`",
		oneOf(&o.exitPolicy, daemon.ExitPolicies()...))
	flags.Func("restart", "whether an app that has ended is restarted: `"+strings.Join(daemon.RestartPolicies(),
		"|")+"`", oneOf(&o.restart, daemon.RestartPolicies()...))
	flags.Func("stop-timeout", "kill an app that has not ended `SECONDS` after its stop signal", func(text string) error {
		seconds, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return errors.New("want a number of seconds")
		}
		o.gracePeriod = fmt.Sprintf("%ds", seconds)
		return nil
	})
	flags.Func("pull", "when an image of a source, such as docker://NAME, is imported: `"+
		strings.Join(daemon.PullPolicies(), "|")+"`", oneOf(&o.pull, daemon.PullPolicies()...))
	o.net.declare(flags)
	o.declareApp(flags)
}

// appFlags are the flags that change an image's app.
func appFlags() []string {
	return []string{
		"exec", "env", "env-file", "user", "workdir", "memory", "cpus", "cap-add", "cap-drop", "privileged", "read-only",
		"interactive", "tty", "health-cmd", "health-interval", "health-timeout", "health-retries", "health-start-period",
		"health-on-failure", "no-healthcheck",
	}
}

func (o *runOptions) declareApp(flags *pflag.FlagSet) {
	flags.Func("exec", "execute `PROGRAM` instead of the image's, with the words after -- as its arguments; with an "+
		"empty PROGRAM, the words after -- are the whole command (also --entrypoint)", func(text string) error {
		o.app.Exec, o.app.ArgsAlone = text, text == ""
		return nil
	})
	o.env.declare(flags)
	declareUser(flags, &o.app.User, &o.app.Group)
	flags.FuncP("workdir", "w", "the working `DIRECTORY`, an absolute path", func(text string) error {
		if !path.IsAbs(text) {
			return errors.New("want an absolute path")
		}
		o.app.WorkingDirectory = text
		return nil
	})
	flags.FuncP("memory", "m", "limit the memory to `SIZE` bytes, such as 512m or 512Mi", func(text string) (err error) {
		o.app.Memory, err = podplan.Memory(text)
		return err
	})
	flags.Func("cpus", "limit the CPU time to `N` CPUs, such as 1.5", func(text string) (err error) {
		o.app.CPU, err = podplan.CPUs(text)
		return err
	})
	flags.BoolVar(&o.app.ReadOnlyRoot, "read-only", false, "make the app's root read-only; its volumes are not")
	flags.BoolVarP(&o.app.Stdin, "interactive", "i", false,
		"connect your stdin to the app's; with --tty or --detach the app's stays open after the end of yours")
	flags.BoolVarP(&o.app.TTY, "tty", "t", false,
		"give the app a terminal of its own; with --interactive, ctrl-p ctrl-q leaves the pod running")
	o.declareCapabilities(flags)
	o.declareHealth(flags)
}

// declareHealth declares the flags that are annotations for the health check.
func (o *runOptions) declareHealth(flags *pflag.FlagSet) {
	for _, f := range []struct{ name, annotation, usage string }{
		{"health-cmd", names.HealthCommandAnnotation, "the app is healthy while `COMMAND` for its shell exits with 0"},
		{"health-interval", names.HealthIntervalAnnotation, "wait a `DURATION` before each check, 30s if not given"},
		{"health-timeout", names.HealthTimeoutAnnotation, "a check that takes a `DURATION` has failed, 30s if not given"},
		{"health-retries", names.HealthRetriesAnnotation, "`N` failures in a row make the app unhealthy, 3 if not given"},
		{"health-start-period", names.HealthStartPeriodAnnotation, "failures in this first `DURATION` do not count"},
		{"health-on-failure", names.HealthOnFailureAnnotation, "what becomes of an unhealthy app: `none|restart`"},
	} {
		flags.Func(f.name, f.usage, func(text string) error { return o.setHealth(f.annotation, text) })
	}
	flags.BoolVar(&o.noHealth, "no-healthcheck", false, "do not make the image's health check")
}

func (o *runOptions) setHealth(annotation, value string) error {
	if o.app.Health == nil {
		o.app.Health = make(map[string]string)
	}
	o.app.Health[annotation] = value
	return plan.CheckHealth(annotation, value)
}

func (o *runOptions) declareCapabilities(flags *pflag.FlagSet) {
	flags.Func("cap-add", "add a `CAPABILITY`, such as NET_ADMIN", func(text string) error {
		if strings.EqualFold(text, "all") {
			return errors.New("name each capability")
		}
		name, err := podplan.Capability(text)
		o.app.CapAdd = append(o.app.CapAdd, name)
		return err
	})
	flags.Func("cap-drop", "take a `CAPABILITY` away, or ALL", func(text string) error {
		name, err := podplan.Capability(text)
		o.app.CapDrop = append(o.app.CapDrop, name)
		return err
	})
	flags.BoolVar(&o.app.Privileged, "privileged", false, "give the app the host's devices and all capabilities, without "+
		"the default filters")
}

// addLabel adds a label of the pod, or replaces it.
func (o *runOptions) addLabel(text string) error {
	key, value, _ := strings.Cut(text, "=")
	switch {
	case key == "":
		return errors.New("want KEY or KEY=VALUE")
	case !utf8.ValidString(text): // JSON would change it
		return errors.New("not UTF-8")
	case o.labels == nil:
		o.labels = make(map[string]string)
	}
	o.labels[key] = value
	return nil
}

// interactive reports whether the caller's input is the app's.
func (o *runOptions) interactive() bool { return o.app.Stdin && !o.detach }

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
		return usageError{fmt.Sprintf("run: --name %s: %v", printable(o.name), podplan.ErrName)}
	}
	if o.cgroupParent != "" && !daemon.IsCgroup(strings.Trim(o.cgroupParent, "/")) {
		return usageError{fmt.Sprintf("run: --cgroup-parent %s: want a path below the root of the cgroups, or %s",
			printable(o.cgroupParent), ownCgroup)}
	}
	if o.app.Privileged && len(o.app.CapDrop) > 0 {
		return usageError{"run: --cap-drop contradicts --privileged, which gives all capabilities"}
	}
	if o.noHealth && len(o.app.Health) > 0 {
		return usageError{"run: --no-healthcheck contradicts the options for a health check"}
	}
	if o.noHealth {
		o.app.Health = map[string]string{names.HealthCommandAnnotation: "none"}
	}
	for _, name := range appFlags() {
		if cmd.Flags().Changed(name) {
			o.appFlag = name
		}
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
	o.source, o.args, o.app.Env = words[0], rest, o.env.all()
	return inUTF8("run", append(slices.Clone(o.args), o.app.Exec, o.app.User, o.app.Group, o.app.WorkingDirectory))
}
