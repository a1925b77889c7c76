// Package boot takes a pod from its manifest to its end. It carries out what package plan has
// decided, step by step, with the parts that its caller passes. Read Steps first: it is
// the list of the steps. Pod is what they share.
package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kurma.io/stager/boot/journal"
)

// Run runs the pod of the manifest at names.Manifest until its end, in these steps, and returns the stager's
// exit code. It stops the pod when ctx is done. The caller must be in a mount namespace of its own with the
// stager's root. Run leaves nothing of the pod but its logs. An error says on one line why the pod did not start or
// did not end cleanly.
func Run(ctx context.Context, parts Parts, steps []Step) (code int, err error) {
	p := &Pod{Parts: parts, journal: new(journal.Journal)}
	defer func() { err = errors.Join(err, p.undoAll()) }()
	for _, step := range steps {
		if ctx.Err() != nil {
			return 0, nil
		}
		p.Log.Debug("step", "name", step.Name)
		if err := step.Do(ctx, p); err != nil {
			if ctx.Err() != nil {
				return 0, nil // the step failed because of the stop
			}
			return 1, err
		}
	}
	return p.code, p.failure
}

// Step is a step of Run. Do may call Pod.Undo, even if it then fails.
type Step struct {
	Name string
	Do   func(context.Context, *Pod) error
}

// After returns the steps with others after the step of that name. It panics if there is no such step: a program that
// leaves its own step out is wrong.
func After(steps []Step, name string, others ...Step) []Step {
	n := slices.IndexFunc(steps, func(s Step) bool { return s.Name == name })
	if n < 0 {
		panic(fmt.Sprintf("no step %q", name))
	}
	return slices.Insert(slices.Clone(steps), n+1, others...)
}

// Without returns the steps without those of these names. It panics if there is no such step.
func Without(steps []Step, names ...string) []Step {
	left := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return slices.Contains(names, s.Name) })
	if len(left)+len(names) != len(steps) {
		panic(fmt.Sprintf("not all of the steps %q are there", names))
	}
	return left
}

// Steps returns all steps in order, from claiming the root to the last app's end. The slice is the caller's, which
// may put steps between them. The caller may also leave out a step that is marked as optional; the others need one
// another.
func Steps() []Step {
	return []Step{
		{"claim root", claimRoot}, // optional
		{"decide", decide},
		{"reserve threads", reserveThreads},       // optional
		{"start metadata service", startMetadata}, // optional
		{"make own view", makeView},
		{"make user namespace", makeUserNamespace},
		{"prepare runtime", prepareRuntime},
		{"open journal", openJournal},   // optional
		{"limit network", limitNetwork}, // optional
		{"make volumes", makeVolumes},
		{"open sockets", openSockets}, // optional
		{"assemble apps", assembleApps},
		{"listen", listen},
		{"mount roots", mountRoots},
		{"guard own life", guardLife}, // optional
		{"run apps", runApps},
	}
}
