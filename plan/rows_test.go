package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// rows are a product's: each decides its value and logs it in the environment of the apps that it is for.
func rows() Rows {
	decide := func(name string, raw []byte) (Decision, error) {
		var value string
		if json.Unmarshal(raw, &value) != nil {
			return Decision{}, errors.New("must be a string")
		}
		return Decision{Value: value, Change: func(a *App) {
			a.Spec.Process.Env = append(a.Spec.Process.Env, name+"="+value)
		}}, nil
	}
	isolator := func(value json.RawMessage, m spec.Support) (Decision, error) {
		d, err := decide("isolator", value)
		if !m.AppArmor {
			d.Fate, d.Why = Ignored, "no AppArmor"
		}
		return d, err
	}
	annotation := func(value string) (Decision, error) {
		if value == "" {
			return Decision{}, errors.New("must not be empty")
		}
		return decide("annotation", fmt.Appendf(nil, "%q", value))
	}
	return Rows{
		Isolators:   []IsolatorRow{{Name: "example.com/i", App: true, Pod: true, Decide: isolator}, {Name: "example.com/app", App: true, Decide: isolator}},
		Keys:        []KeyRow{{"example.com/key", func(value json.RawMessage) (Decision, error) { return decide("key", value) }}, {"plain", func(value json.RawMessage) (Decision, error) { return decide("plain", value) }}},
		Annotations: []AnnotationRow{{Name: "example.com/a", App: true, Pod: true, Decide: annotation}, {Name: "example.com/pod-only", Pod: true, Decide: annotation}},
	}
}

// decideProduct plans the specification's pod, with what the pod and its app have more and with a configuration, by the rows.
func decideProduct(t *testing.T, r Rows, pod, app, image, config string) (*Pod, error) {
	t.Helper()
	text := strings.NewReplacer(
		`"apps": [{`, pod+`"apps": [{`+app,
		`"app": {`, `"app": {`+image,
		`"stagerConfig": {}`, `"stagerConfig": `+config,
	).Replace(example(t))
	m, err := manifest.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r.Decide(m, able, nil, json.RawMessage(`{"plain": "of the image", "example.com/key": "of the image"}`))
}

// Each row decides its value where it applies. Its change comes after the plan, the app's own last.
func TestRowsOfAProductDecide(t *testing.T) {
	pod, err := decideProduct(t, rows(),
		`"annotations": [{"name": "example.com/a", "value": "of pod"}, {"name": "example.com/pod-only", "value": "x"}],
		 "isolators": [{"name": "example.com/i", "value": "of pod"}, {"name": "example.com/app", "value": "of pod"}],`,
		`"annotations": [{"name": "example.com/a", "value": "of app"}, {"name": "example.com/pod-only", "value": ""}],`,
		`"isolators": [{"name": "example.com/i", "value": "of app"}, {"name": "example.com/app", "value": "y"}],`,
		`{"Plain": "given", "unknown": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{pod.Config.Values, pod.Values, pod.Apps[0].Values, pod.Fates, pod.Apps[0].Fates}
	want := []any{
		map[string]any{"example.com/key": "of the image", "plain": "given"},
		map[string]any{"example.com/a": "of pod", "example.com/pod-only": "x", "example.com/i": "of pod"},
		map[string]any{"example.com/a": "of app", "example.com/i": "of app", "example.com/app": "y"},
		[]IsolatorFate{{"example.com/i", Enforced, ""}, {"example.com/app", Ignored, "only apps have this isolator, not the pod"}},
		[]IsolatorFate{{"example.com/i", Enforced, ""}, {"example.com/app", Enforced, ""}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	env := pod.Apps[0].Spec.Process.Env
	changes := []string{
		"key=of the image", "plain=given", "isolator=of pod", "annotation=of pod", "annotation=x",
		"isolator=of app", "isolator=y", "annotation=of app",
	}
	if diff := cmp.Diff(changes, env[len(env)-len(changes):]); diff != "" {
		t.Error(diff)
	}
	if warnings := strings.Join(pod.Warnings, "\n"); !strings.Contains(warnings, "stagerConfig.unknown") || strings.Contains(warnings, "plain") {
		t.Errorf("warnings: %s", warnings)
	}
}

func TestRowsOfAProductRefuse(t *testing.T) {
	for name, test := range map[string]struct{ pod, app, image, config, want string }{
		"isolator":           {"", "", `"isolators": [{"name": "example.com/i", "value": 7}],`, "{}", `app "nats": isolator example.com/i: 7: must be a string`},
		"isolator, no value": {"", "", `"isolators": [{"name": "example.com/i", "value": null}],`, "{}", `isolator example.com/i: null: value is missing`},
		"isolator twice":     {`"isolators": [{"name": "example.com/i", "value": "a"}, {"name": "example.com/i", "value": "b"}],`, "", "", "{}", `pod: isolator example.com/i: "b": given twice`},
		"key":                {"", "", "", `{"plain": []}`, `stagerConfig.plain: []: must be a string`},
		"key with a dot":     {"", "", "", `{"example.com/key": 1}`, `example.com/key`},
		"annotation":         {`"annotations": [{"name": "example.com/a", "value": ""}],`, "", "", "{}", `pod: annotation example.com/a: "": must not be empty`},
		"app's annotation":   {"", `"annotations": [{"name": "example.com/a", "value": ""}],`, "", "{}", `app "nats": annotation example.com/a: "": must not be empty`},
		"ignored strictly":   {`"isolators": [{"name": "example.com/app", "value": "a"}],`, "", "", `{"strictIsolators": true}`, `isolator "example.com/app" would be ignored`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decideProduct(t, rows(), test.pod, test.app, test.image, test.config)
			wantError(t, err, test.want)
		})
	}
}

// A name that is taken would hide a row.
func TestRowsOfAProductHaveNamesOfTheirOwn(t *testing.T) {
	for name, r := range map[string]Rows{
		"graphstorage":      {Keys: []KeyRow{{Name: "GraphStorage"}}},
		"log.path":          {Keys: []KeyRow{{Name: "log.path"}}},
		"maxprocesses":      {Keys: []KeyRow{{Name: "maxProcesses"}}},
		"one":               {Keys: []KeyRow{{Name: "One"}, {Name: "one"}}},
		"resource/cpu":      {Isolators: []IsolatorRow{{Name: "resource/cpu"}}},
		"example.com/both":  {Isolators: []IsolatorRow{{Name: "example.com/both"}}, Annotations: []AnnotationRow{{Name: "example.com/both"}}},
		names.TTYAnnotation: {Annotations: []AnnotationRow{{Name: names.TTYAnnotation}}},
		"":                  {Annotations: []AnnotationRow{{}}},
	} {
		_, err := decideProduct(t, r, "", "", "", "{}")
		wantError(t, err, strconv.Quote(name))
	}
}
