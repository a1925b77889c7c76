package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	decision "kurma.io/stager/plan"
	"kurma.io/stager/unionfs"

	"github.com/spf13/cobra"
)

// validated is what `validate --json` prints.
type validated struct {
	Name      string              `json:"name"`
	Apps      []string            `json:"apps"`
	Warnings  []string            `json:"warnings"`
	Isolators []validatedIsolator `json:"isolators"`
}

// validatedIsolator is the fate of an isolator.
type validatedIsolator struct {
	App  string `json:"app,omitempty"` // "" for the pod's
	Name string `json:"name"`
	Fate string `json:"fate"` // "enforced", "modified" or "ignored"
	Why  string `json:"why,omitempty"`
}

// validateCommand is `validate`.
func validateCommand(c *cli) *cobra.Command {
	var net netFlags
	cmd := &cobra.Command{
		Use:   "validate POD.json | IMAGE",
		Short: "check a pod without starting it: what would be refused, changed or ignored",
		Long: `validate plans the pod as run does, and then as the reference stager of this version would on this machine. It
prints a line for each warning and each isolator, and starts nothing. The exit status is 1 if the pod would be refused.`,
		Args:              wants(1, 1, "POD.json or IMAGE"),
		ValidArgsFunction: c.completeImages(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.validate(cmd.Context(), args[0], net) },
	}
	net.declare(cmd.Flags())
	return cmd
}

func (c *cli) validate(ctx context.Context, source string, net netFlags) error {
	if err := net.check("validate", c.networks); err != nil {
		return err
	}
	source, err := c.obtainAll(ctx, source)
	if err != nil {
		return err
	}
	store, err := c.images()
	if err != nil {
		return err
	}
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	planned, warnings, err := c.planPod(store.Catalog(ring, c.config.ImagePins), runOptions{source: source, net: net}, nil)
	var decided *decision.Pod
	if err == nil {
		decided, err = decideAsStager(planned)
	}
	if err != nil {
		c.warn(warnings...) // a misspelt key may be the cause
		return err
	}
	found := validated{Name: planned.Name, Apps: []string{}, Warnings: append(append([]string{}, warnings...), decided.Warnings...), Isolators: []validatedIsolator{}}
	found.add("", decided.Fates)
	for _, app := range decided.Apps {
		found.Apps = append(found.Apps, app.Name)
		found.add(app.Name, app.Fates)
		for _, warning := range app.Warnings {
			found.Warnings = append(found.Warnings, fmt.Sprintf("app %q: %s", app.Name, warning))
		}
	}
	if c.json {
		return c.printJSON(found)
	}
	return c.printValidated(found)
}

// decideAsStager decides about the pod as the reference stager would on this machine.
func decideAsStager(planned pods.Plan) (*decision.Pod, error) {
	m, err := manifest.Read(bytes.NewReader(planned.Manifest))
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", planned.Name, err)
	}
	decided, err := decision.Decide(m, machine.Support(), unionfs.NamesOf(unionfs.Drivers()))
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", planned.Name, err)
	}
	return decided, nil
}

func (v *validated) add(app string, fates []decision.IsolatorFate) {
	for _, f := range fates {
		v.Isolators = append(v.Isolators, validatedIsolator{app, f.Name, string(f.Fate), f.Why})
	}
}

func (c *cli) printValidated(v validated) error {
	var errs []error
	line := func(format string, args ...any) {
		errs = append(errs, c.line(fmt.Sprintf(format, args...)))
	}
	for _, warning := range v.Warnings {
		line("warning: %s", printable(warning))
	}
	for _, i := range v.Isolators {
		of, why := "pod", ""
		if i.App != "" {
			of = fmt.Sprintf("app %q", i.App)
		}
		if i.Why != "" {
			why = ": " + printable(i.Why)
		}
		line("%s: isolator %s is %s%s", of, printable(i.Name), i.Fate, why)
	}
	noun := "apps"
	if len(v.Apps) == 1 {
		noun = "app"
	}
	line("pod %q with %d %s can be started", v.Name, len(v.Apps), noun)
	return errors.Join(errs...)
}
