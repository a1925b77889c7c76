// Package program is the main function of a stager: a product calls Main with its parts, and all other parts are the
// reference stager's. The package needs neither cgo nor a runtime; the product's Options bring them: package native has
// the reference stager's, with its init in C, package goinit an init in Go alone.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/helper"
	"kurma.io/stager/internal/version"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// Options are the parts of a stager. Begin is required; the zero value of every other part is the reference stager's.
type Options struct {
	// Version is what --version prints and the log has; "" for the version of the program's module.
	Version string

	// Begin returns the supervisor's parts if a daemon has started this process as the stager: called by the name
	// names.Program, without arguments. It returns nil in a process that is called by another name. In the processes that
	// init or the runtime has executed this program for, it does not return. Main calls it before it opens anything.
	Begin func() (*Supervisor, error)

	// Drivers returns the union file systems, in the order of the automatic choice; nil for unionfs.Drivers.
	Drivers func(helper.Starter, *slog.Logger) []unionfs.Driver

	// Steps are the steps of a pod's way; nil for boot.Steps. A product adds its own, or leaves one out.
	Steps []boot.Step

	// CallIns are the callers' side of further call-ins, by name, or of others in place of the standard ones. The image
	// has a link names.CallInDir/NAME to the program for each.
	CallIns map[string]callins.CallIn

	// Handlers returns the supervisor's side of further call-ins, by the name of the request, or of others in place of
	// the standard ones; nil for none.
	Handlers func(*boot.Pod) map[string]callins.Handler

	// Streams are what a call-in gets; nil for callins.ProcessStreams. Package plain has another, which makes most calls
	// of the standard status and run before main.
	Streams func() callins.Streams

	// Rows are further isolators, configuration keys and annotations.
	Rows plan.Rows

	// Roles are the main functions of further processes, by the base name of argv[0]: the program executes itself under
	// such a name. Their arguments are those after argv[0].
	Roles map[string]func(ctx context.Context, args []string) error
}

// Supervisor has the parts of a pod's supervisor that belong together.
type Supervisor struct {
	Init      boot.Init
	Inherited boot.Inherited // boot.TakeDescriptors has them

	// Runtime makes the pod's runtime, which logs to the logger and starts helper processes with the starter.
	Runtime func(helper.Starter, *slog.Logger) spec.Runtime
}

// Main is the main function of a stager. It finds out what the process is: the supervisor, one of the Roles, or the
// call-in named by the base name of argv[0] or by the first argument; with --version it prints the version. Any other
// call is an error: no call that the program does not know starts a pod. Main returns the program's exit code, and
// writes the text of an error to stderr.
func Main(o Options) int {
	return callins.ExitCode(o.dispatch(context.Background(), os.Args), os.Stderr)
}

func (o Options) dispatch(ctx context.Context, args []string) error {
	supervisor, err := o.Begin()
	if err != nil {
		return fmt.Errorf("%s: %w", names.Program, err)
	}
	if supervisor != nil {
		return o.supervise(ctx, supervisor)
	}
	if len(args) == 0 {
		return errors.New(names.Program + ": no argv[0]")
	}
	if role, ok := o.Roles[filepath.Base(args[0])]; ok {
		return role(ctx, args[1:])
	}
	known := o.callIns()
	if callIn, ok := known[filepath.Base(args[0])]; ok {
		return callIn(ctx, o.streams(), args[1:])
	}
	all := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	if len(args) == 1 {
		return fmt.Errorf("%s: called as %q, want %s or a call-in: %s", names.Program, args[0], names.Program, all)
	}
	if callIn, ok := known[args[1]]; ok {
		return callIn(ctx, o.streams(), args[2:])
	}
	if args[1] == "--version" && len(args) == 2 {
		_, err := fmt.Fprintln(os.Stdout, names.Program, o.version())
		return err
	}
	return fmt.Errorf("%s: unknown call-in %q, want one of %s", names.Program, args[1], all)
}

// supervise is the supervisor. It returns when the pod has ended.
func (o Options) supervise(ctx context.Context, s *Supervisor) error {
	steps := o.Steps
	if steps == nil {
		steps = boot.Steps()
	}
	defer runtime.KeepAlive(s.Inherited.Ready) // a start that fails closes it by the end of this process alone
	helpers := new(helper.Children)
	defer helpers.End(helpersEnd)
	code, err := boot.Supervise(ctx, func(log *slog.Logger) boot.Parts {
		helpers.Log = log
		return o.parts(s, helpers, log)
	}, steps)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", names.Program, err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// helpersEnd limits how long the end of a pod waits for its helpers' ends, which a file system's server may delay.
const helpersEnd = 2 * time.Second

func (o Options) parts(s *Supervisor, helpers helper.Starter, log *slog.Logger) boot.Parts {
	drivers := unionfs.Drivers()
	if o.Drivers != nil {
		drivers = o.Drivers(helpers, log)
	}
	return boot.Parts{
		Version: o.version(), Runtime: s.Runtime(helpers, log), Drivers: drivers,
		Init: s.Init, Inherited: s.Inherited, Handlers: o.Handlers, Rows: o.Rows,
	}
}

func (o Options) version() string { return cmp.Or(o.Version, version.String()) }

func (o Options) callIns() map[string]callins.CallIn {
	all := callins.CallIns()
	maps.Copy(all, o.CallIns)
	return all
}

func (o Options) streams() callins.Streams {
	if o.Streams == nil {
		return callins.ProcessStreams()
	}
	return o.Streams()
}
