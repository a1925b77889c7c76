package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// Rows are the rows that a product adds to the tables of isolators, configuration keys and annotations, each with its
// decision. A row must not have the name of another: Decide refuses every pod then.
type Rows struct {
	Isolators   []IsolatorRow
	Keys        []KeyRow
	Annotations []AnnotationRow
}

// IsolatorRow is a product's row in the table of isolators. An app or a pod has the isolator once at most, with a value
// that is not null. Where the isolator does not apply, it is ignored.
type IsolatorRow struct {
	Name     string
	Pod, App bool // where it applies

	// Decide reads the value. Its error refuses the pod, and says what the value must be. machine is what the runtime
	// supports.
	Decide func(value json.RawMessage, machine spec.Support) (Decision, error)
}

// KeyRow is a product's row in the table of stagerConfig's keys. A manifest has the name in any case. A name with a dot
// is one key, not a key in an object.
type KeyRow struct {
	Name string

	// Decide reads the value, which is not null: the manifest's, or else that of the configuration in the image. Its
	// error refuses the pod, and says what the value must be.
	Decide func(value json.RawMessage) (Decision, error)
}

// AnnotationRow is a product's row in the table of annotations of the pod manifest.
type AnnotationRow struct {
	Name     string
	Pod, App bool // where it is read

	// Decide reads the value. Its error refuses the pod, and says what the value must be.
	Decide func(value string) (Decision, error)
}

// Decision is what a row decides. Its zero value is an isolator that is enforced as written, and does nothing.
type Decision struct {
	Fate Fate   // of an isolator; "" for Enforced
	Why  string // not "" for another fate

	// Value is for the product's steps: Decide puts it under the row's name into the Values of the Config, the Pod or the
	// App that has the row's value. nil for none.
	Value any

	// Change changes the plan of the app, or of each app for a value of the pod or of the configuration; nil for no
	// change. All of the app's plan but its Layers and Sockets is decided by then; the app's own changes are the last.
	Change func(*App)
}

// effects are what rows have decided about a pod, an app or the configuration.
type effects struct {
	Values  map[string]any
	Changes []func(*App)
}

func (e *effects) add(name string, decision Decision) {
	if decision.Value != nil {
		if e.Values == nil {
			e.Values = map[string]any{}
		}
		e.Values[name] = decision.Value
	}
	if decision.Change != nil {
		e.Changes = append(e.Changes, decision.Change)
	}
}

// take gives the app what rows have decided: the pod's changes, then its own.
func (a *App) take(own effects, pods []func(*App)) {
	a.Values = own.Values
	for _, change := range slices.Concat(pods, own.Changes) {
		change(a)
	}
}

// Check refuses a row without a name, and one whose name another row or a standard table has. Values of isolators and
// annotations are in one map.
func (r Rows) Check() error {
	var keys, others []string
	for _, object := range objects() {
		keys = append(keys, strings.ToLower(object))
	}
	for _, s := range settings(nil) {
		keys = append(keys, strings.ToLower(s.key))
	}
	for _, row := range r.Keys {
		keys = append(keys, strings.ToLower(row.Name))
	}
	for _, row := range r.isolators() {
		others = append(others, row.name)
	}
	others = append(others, annotations()...)
	for _, row := range r.Annotations {
		others = append(others, row.Name)
	}
	for _, table := range [][]string{keys, others} {
		slices.Sort(table)
		for i, name := range table {
			if name == "" || i > 0 && name == table[i-1] {
				return fmt.Errorf("the stager was built with a row %q whose name is empty or taken", name)
			}
		}
	}
	return nil
}

// annotations is the table of the names of the annotations of pods and apps that this package reads.
func annotations() []string {
	return []string{
		names.HostnameAnnotation, names.StdinAnnotation, names.TTYAnnotation, names.TTYSizeAnnotation,
		names.HideProcessesAnnotation, names.EnvironmentAnnotation, names.SeccompProfileAnnotation,
		names.OwnPIDsAnnotation, names.NumericIDsAnnotation,
		names.StopSignalAnnotation, notifyAnnotation,
		names.HealthCommandAnnotation, names.HealthIntervalAnnotation, names.HealthTimeoutAnnotation,
		names.HealthRetriesAnnotation, names.HealthStartPeriodAnnotation, names.HealthOnFailureAnnotation,
		names.HealthReadyAnnotation,
	}
}

// isolators is the table with the product's rows.
func (r Rows) isolators() []isolator {
	table := isolators()
	for _, row := range r.Isolators {
		apply := func(i *applier, value json.RawMessage) (verdict, error) {
			d, err := row.Decide(value, i.machine)
			if err == nil {
				i.decided.add(row.Name, d)
			}
			return verdict{d.Fate, d.Why}, err
		}
		table = append(table, isolator{name: row.Name, pod: row.Pod, app: row.App, apply: apply})
	}
	return table
}

// settings is the table of keys with the product's rows, which put their decisions into own by their names.
func (r Rows) settings(drivers []string, own map[string]Decision) []setting {
	table := settings(drivers)
	for _, row := range r.Keys {
		key := row.Name
		if strings.Contains(key, ".") {
			key = strconv.Quote(key) // as flatten has it
		}
		table = append(table, setting{key, func(_ *Config, value json.RawMessage) (err error) {
			own[row.Name], err = row.Decide(value)
			return err
		}})
	}
	return table
}

// configure reads the configuration: that of the image, nil for none, and the manifest's stagerConfig over it. unknown
// are the unknown keys.
func (r Rows) configure(m *manifest.Manifest, drivers []string, image json.RawMessage) (
	config Config, own effects, unknown []string, err error,
) {
	decisions := map[string]Decision{}
	table := r.settings(drivers, decisions)
	config = defaultConfig()
	for _, source := range []struct {
		name string
		raw  json.RawMessage
	}{{names.ConfigFile, image}, {"stagerConfig", m.StagerConfig}} {
		more, err := config.parse(source.name, source.raw, table)
		if err != nil {
			return Config{}, effects{}, nil, err
		}
		unknown = append(unknown, more...)
	}
	for _, name := range slices.Sorted(maps.Keys(decisions)) {
		own.add(name, decisions[name])
	}
	config.Values = own.Values
	return config, own, unknown, nil
}

// annotate reads the product's annotations of the pod or of an app.
func (r Rows) annotate(annotations types.Annotations, forPod bool, own *effects) error {
	for _, row := range r.Annotations {
		value, found := annotations.Get(row.Name)
		if !found || forPod && !row.Pod || !forPod && !row.App {
			continue
		}
		d, err := row.Decide(value)
		if err != nil {
			return fmt.Errorf("annotation %s: %q: %w", row.Name, value, err)
		}
		own.add(row.Name, d)
	}
	return nil
}
