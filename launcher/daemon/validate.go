package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	decision "kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// Validation is what would become of a pod.
type Validation struct {
	Name      string              `json:"name"`
	Apps      []string            `json:"apps"`
	Warnings  []string            `json:"warnings"`
	Isolators []ValidatedIsolator `json:"isolators"`
}

// ValidatedIsolator is the fate of an isolator.
type ValidatedIsolator struct {
	App  string `json:"app,omitempty"` // "" for the pod's
	Name string `json:"name"`
	Fate string `json:"fate"` // "enforced", "modified", "ignored", or "undecided" for one that only this stager image has
	Why  string `json:"why,omitempty"`
}

// Validate plans a pod as Create does, and then as the reference stager of this version would on this machine. It
// accepts isolators and keys that the stager image names as its own: only the stager reads their values. It starts
// nothing. The warnings, which are also in the Validation, come with an error, too.
func (d *Daemon) Validate(ctx context.Context, o PodOptions) (v Validation, warnings []string, err error) {
	got, err := d.obtainAll(ctx, o)
	if err != nil {
		return v, nil, err
	}
	catalog, err := d.catalog()
	if err != nil {
		return v, nil, err
	}
	planned, warnings, err := d.plan(catalog, got, "", nil, o)
	if err != nil {
		return v, warnings, err
	}
	stager, err := findStager(catalog, got[d.config.DefaultStagerImage])
	if err != nil {
		return v, warnings, err
	}
	decided, err := decideAsStager(planned, rowsOf(stager))
	if err != nil {
		return v, warnings, err
	}
	v = Validation{Name: planned.Name, Apps: []string{}, Warnings: append(append([]string{}, warnings...),
		decided.Warnings...), Isolators: []ValidatedIsolator{}}
	v.add("", decided.Fates)
	for _, app := range decided.Apps {
		v.Apps = append(v.Apps, app.Name)
		v.add(app.Name, app.Fates)
		for _, warning := range slices.Concat(app.Warnings, app.Notes) {
			v.Warnings = append(v.Warnings, fmt.Sprintf("app %q: %s", app.Name, warning))
		}
	}
	return v, warnings, nil
}

// rowsOf returns the rows that a stager image names as its own, but those that this program has as standard ones: the
// image may be of an earlier version.
func rowsOf(stager *images.Image) (r decision.Rows) {
	for name := range strings.FieldsSeq(stager.Manifest.Annotations[names.IsolatorsAnnotation]) {
		more := r
		more.Isolators = append(more.Isolators, decision.IsolatorRow{Name: name, Pod: true, App: true, Decide: undecided})
		if more.Check() == nil {
			r = more
		}
	}
	for name := range strings.FieldsSeq(stager.Manifest.Annotations[names.KeysAnnotation]) {
		more := r
		more.Keys = append(more.Keys, decision.KeyRow{Name: name, Decide: accepted})
		if more.Check() == nil {
			r = more
		}
	}
	return r
}

func accepted(json.RawMessage) (decision.Decision, error) { return decision.Decision{}, nil }

func undecided(json.RawMessage, spec.Support) (decision.Decision, error) {
	return decision.Decision{Fate: decision.Undecided, Why: "only the stager image has it"}, nil
}

// decideAsStager decides about the pod as the reference stager with more rows would on this machine.
func decideAsStager(planned pods.Plan, rows decision.Rows) (*decision.Pod, error) {
	m, err := manifest.Read(bytes.NewReader(planned.Manifest))
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", planned.Name, err)
	}
	config, err := os.ReadFile(filepath.Join(planned.StagerRoot, names.ConfigFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the stager image's configuration: %w", err)
	}
	decided, err := rows.Decide(m, machine.Support(), unionfs.NamesOf(unionfs.Drivers()), config)
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", planned.Name, err)
	}
	return decided, nil
}

func (v *Validation) add(app string, fates []decision.IsolatorFate) {
	for _, f := range fates {
		v.Isolators = append(v.Isolators, ValidatedIsolator{app, f.Name, string(f.Fate), f.Why})
	}
}
