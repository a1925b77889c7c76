package main

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/podplan"

	"github.com/appc/spec/schema/types"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runOptions is the command line of `run`.
type runOptions struct {
	detach bool
	remove bool
	// exitPolicy and restart are values of the same keys of stagerConfig, "" for the configuration's.
	exitPolicy, restart string
	name, hostname      string
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
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when the pod is up")
	flags.BoolVar(&o.remove, "rm", false, "delete the pod with its logs when it ends")
	flags.Func("name", "the pod's `NAME`", notEmpty(&o.name, "want a name"))
	flags.Func("hostname", "the pod's hostname, `NAME`; without it the pod's name", func(text string) error {
		o.hostname = text
		return podplan.CheckHostname(text)
	})
	flags.Func("cgroup-parent", "make the pod's cgroup in this `CGROUP`; \"own\" for the launcher's own, in a service with Delegate=yes", notEmpty(&o.cgroupParent, "want a cgroup"))
	flags.VarP(&o.volumes, "volume", "v", "mount the host's path as a volume, `NAME=/PATH`, or at a path of each app, /PATH:/TARGET[:ro]")
	flags.Func("exit-policy", "when the pod ends by itself: `"+strings.Join(daemon.ExitPolicies(), "|")+"`", oneOf(&o.exitPolicy, daemon.ExitPolicies()...))
	flags.Func("restart", "whether an app that has ended is restarted: `"+strings.Join(daemon.RestartPolicies(), "|")+"`", oneOf(&o.restart, daemon.RestartPolicies()...))
	o.net.declare(flags)
	o.declareApp(flags)
}

// appFlags are the flags that change an image's app.
func appFlags() []string {
	return []string{"exec", "env", "env-file", "user", "workdir", "memory", "cpus", "cap-add", "cap-drop", "interactive", "tty"}
}

func (o *runOptions) declareApp(flags *pflag.FlagSet) {
	flags.Func("exec", "execute `PROGRAM` instead of the image's; the arguments after -- are its own", notEmpty(&o.app.Exec, "want a program"))
	o.env.declare(flags)
	flags.FuncP("user", "u", "run as `USER[:GROUP]`, names or numbers", func(text string) error {
		o.app.User, o.app.Group, _ = strings.Cut(text, ":")
		if o.app.User == "" {
			return errors.New("want USER[:GROUP]")
		}
		return nil
	})
	flags.FuncP("workdir", "w", "the working `DIRECTORY`, an absolute path", func(text string) error {
		if !path.IsAbs(text) {
			return errors.New("want an absolute path")
		}
		o.app.WorkingDirectory = text
		return nil
	})
	flags.FuncP("memory", "m", "limit the memory to `SIZE` bytes, such as 512m or 512Mi", func(text string) (err error) {
		o.app.Memory, err = parseMemory(text)
		return err
	})
	flags.Func("cpus", "limit the CPU time to `N` CPUs, such as 1.5", func(text string) error {
		if !regexp.MustCompile(`^([0-9]+(\.[0-9]{1,3})?|[0-9]+m)$`).MatchString(text) || strings.Trim(text, "0.m") == "" {
			return errors.New("want a number of CPUs such as 1.5")
		}
		o.app.CPU = text
		return nil
	})
	flags.BoolVarP(&o.app.Stdin, "interactive", "i", false, "keep the app's stdin open, and connect your stdin; EOF is not forwarded")
	flags.BoolVarP(&o.app.TTY, "tty", "t", false, "give the app a terminal of its own; with --interactive, ctrl-p ctrl-q leaves the pod running")
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
}

// interactive reports whether the caller's input is the app's.
func (o *runOptions) interactive() bool { return o.app.Stdin && !o.detach }

// parseMemory reads bytes with podman's suffixes, which are powers of 1024, or appc's.
func parseMemory(text string) (string, error) {
	match := regexp.MustCompile(`^([0-9]+)(b|k|m|g|t|K|M|G|T|Ki|Mi|Gi|Ti)?$`).FindStringSubmatch(text)
	if match == nil || strings.Trim(match[1], "0") == "" {
		return "", errors.New("want a number of bytes such as 512m or 512Mi")
	}
	switch suffix := match[2]; suffix {
	case "b":
		return match[1], nil
	case "k", "m", "g", "t":
		return match[1] + strings.ToUpper(suffix) + "i", nil
	}
	return text, nil
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
	if o.cgroupParent != "" && !daemon.IsCgroup(strings.Trim(o.cgroupParent, "/")) {
		return usageError{fmt.Sprintf("run: --cgroup-parent %s: want a path below the root of the cgroups, or %s", printable(o.cgroupParent), ownCgroup)}
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

// volumeFlags collects --volume.
type volumeFlags struct {
	named  map[string]string // paths of the host by the names of volumes
	mounts []podplan.Mount
}

// String implements pflag.Value.
func (v *volumeFlags) String() string { return "" }

// Type implements pflag.Value.
func (v *volumeFlags) Type() string { return "NAME=PATH" }

// Set implements pflag.Value.
func (v *volumeFlags) Set(text string) error {
	if !utf8.ValidString(text) { // JSON would change it
		return errors.New("the path is not UTF-8")
	}
	if strings.HasPrefix(text, "/") {
		return v.addMount(text)
	}
	name, source, ok := strings.Cut(text, "=")
	if !ok || name == "" || !strings.HasPrefix(source, "/") {
		return errors.New("want NAME=/PATH, or /PATH:/TARGET[:ro]")
	}
	if _, err := types.NewACName(name); err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	if _, twice := v.named[name]; twice {
		return fmt.Errorf("volume %q is given twice", name)
	}
	if v.named == nil {
		v.named = make(map[string]string)
	}
	v.named[name] = source
	return nil
}

// addMount reads /PATH:/TARGET[:ro].
func (v *volumeFlags) addMount(text string) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || !path.IsAbs(parts[1]) {
		return errors.New("want /PATH:/TARGET[:ro], or NAME=/PATH")
	}
	m := podplan.Mount{Source: parts[0], Target: path.Clean(parts[1])}
	if len(parts) == 3 {
		switch parts[2] {
		case "ro":
			m.ReadOnly = true
		case "rw":
		default:
			return fmt.Errorf("%s: want ro or rw", quoted(parts[2]))
		}
	}
	for _, other := range v.mounts {
		if other.Target == m.Target {
			return fmt.Errorf("target %s is given twice", quoted(m.Target))
		}
	}
	v.mounts = append(v.mounts, m)
	return nil
}
