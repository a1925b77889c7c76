package podplan

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/manifest"
	decision "kurma.io/stager/plan"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"
)

// describedFields are the fields that a table of docs/pods.md describes, in its order, with their meanings.
type describedFields struct {
	names    []string
	meanings map[string]string
}

// described reads the table below a heading of docs/pods.md.
func described(t *testing.T, heading string) describedFields {
	t.Helper()
	text, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
	if !found {
		t.Fatalf("docs/pods.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	all := describedFields{meanings: map[string]string{}}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (.*) \\|$").FindAllStringSubmatch(section, -1) {
		all.names = append(all.names, row[1])
		all.meanings[row[1]] = row[2]
	}
	return all
}

// headings are the tables of docs/pods.md, by the type of which they describe the fields.
func headings() map[reflect.Type]string {
	const pairs = "Names and values"
	return map[reflect.Type]string{
		reflect.TypeFor[schema.PodManifest]():        "Pod",
		reflect.TypeFor[schema.RuntimeApp]():         "App",
		reflect.TypeFor[schema.RuntimeImage]():       "Image",
		reflect.TypeFor[types.App]():                 "App section",
		reflect.TypeFor[types.EventHandler]():        "Event handler",
		reflect.TypeFor[types.Volume]():              "Volume",
		reflect.TypeFor[schema.Mount]():              "Mount",
		reflect.TypeFor[types.MountPoint]():          "Mount point",
		reflect.TypeFor[types.Port]():                "Port",
		reflect.TypeFor[types.ExposedPort]():         "Port of the host",
		reflect.TypeFor[types.EnvironmentVariable](): pairs,
		reflect.TypeFor[types.Label]():               pairs,
		reflect.TypeFor[types.Annotation]():          pairs,
		reflect.TypeFor[types.Isolator]():            pairs,
	}
}

// docs/pods.md describes each field of appc's types once, and no other.
func TestEveryFieldOfAPodIsDescribed(t *testing.T) {
	found := map[reflect.Type][]string{}
	fieldsOf(reflect.TypeFor[schema.PodManifest](), found)
	for object, fields := range found {
		heading := headings()[object]
		if heading == "" {
			t.Errorf("docs/pods.md has no table for %s", object)
			continue
		}
		table := described(t, heading)
		slices.Sort(fields)
		if diff := cmp.Diff(fields, slices.Sorted(slices.Values(table.names))); diff != "" {
			t.Errorf("%s (-) and the table %q (+) differ:\n%s", object, heading, diff)
		}
	}
	if len(found) != len(headings()) {
		t.Errorf("a pod manifest has %d kinds of objects, and docs/pods.md describes %d", len(found), len(headings()))
	}
}

// fieldsOf adds the names of the fields in JSON of a type, and of all types in it.
func fieldsOf(object reflect.Type, found map[reflect.Type][]string) {
	for object.Kind() == reflect.Pointer || object.Kind() == reflect.Slice {
		object = object.Elem()
	}
	if object.Kind() != reflect.Struct || found[object] != nil {
		return
	}
	for i := range object.NumField() {
		field := object.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue // such as those of a version or an ID, which are strings in JSON
		}
		found[object] = append(found[object], name)
		fieldsOf(field.Type, found)
	}
}

// The fields that the launcher does not warn of are those that docs/pods.md describes.
func TestTheLauncherKnowsTheDescribedFields(t *testing.T) {
	for _, tt := range []struct {
		heading string
		known   keys
	}{
		{"Pod", podKeys()},
		{"App", podKeys()["apps"]},
		{"Image", podKeys()["apps"]["image"]},
		{"App section", podKeys()["apps"]["app"]},
		{"Event handler", podKeys()["apps"]["app"]["eventHandlers"]},
		{"Volume", podKeys()["volumes"]},
		{"Volume", podKeys()["apps"]["mounts"]["appVolume"]},
		{"Mount", podKeys()["apps"]["mounts"]},
		{"Mount point", podKeys()["apps"]["app"]["mountPoints"]},
		{"Port", podKeys()["apps"]["app"]["ports"]},
		{"Port", podKeys()["ports"]["podPort"]},
		{"Port of the host", podKeys()["ports"]},
		{"Names and values", podKeys()["isolators"]},
		{"Names and values", podKeys()["apps"]["image"]["labels"]},
	} {
		names := slices.Sorted(slices.Values(described(t, tt.heading).names))
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(tt.known))); diff != "" {
			t.Errorf("the table %q (-) and the launcher (+) differ:\n%s", tt.heading, diff)
		}
	}
}

// wholePod has each required field, and the fields that docs/pods.md says are required in a case.
const wholePod = `{
	"acKind": "PodManifest", "acVersion": "0.8.11",
	"apps": [{
		"name": "a", "image": {"name": "example.com/my_app.1", "labels": [{"name": "version", "value": "1"}]},
		"mounts": [{"volume": "v", "path": "/v"}, {"volume": "e", "path": "/e", "appVolume": {"name": "e", "kind": "empty"}}],
		"annotations": [{"name": "example.com/x", "value": "1"}],
		"app": {
			"exec": ["/x"], "user": "0", "group": "0",
			"eventHandlers": [{"name": "pre-start", "exec": ["/y"]}],
			"environment": [{"name": "A", "value": "b"}],
			"mountPoints": [{"name": "p", "path": "/p"}],
			"ports": [{"name": "http", "protocol": "tcp", "port": 80}],
			"isolators": [{"name": "example.com/x", "value": 1}]
		}
	}],
	"volumes": [{"name": "v", "kind": "host", "source": "/srv"}],
	"ports": [{"name": "http", "hostPort": 8080}]
}`

// A pod without a field that docs/pods.md says is required does not start; one without another field does, unless the
// pod refers to what the field has.
func TestRequiredFieldsAreRequired(t *testing.T) {
	if err := decided(t, wholePod); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		heading string
		place   []any
	}{
		{"Pod", nil},
		{"App", []any{"apps", 0}},
		{"App section", []any{"apps", 0, "app"}},
		{"Event handler", []any{"apps", 0, "app", "eventHandlers", 0}},
		{"Volume", []any{"volumes", 0}},
		{"Volume", []any{"apps", 0, "mounts", 1, "appVolume"}},
		{"Mount", []any{"apps", 0, "mounts", 0}},
		{"Mount point", []any{"apps", 0, "app", "mountPoints", 0}},
		{"Port", []any{"apps", 0, "app", "ports", 0}},
		{"Port of the host", []any{"ports", 0}},
		{"Names and values", []any{"apps", 0, "app", "environment", 0}},
		{"Names and values", []any{"apps", 0, "app", "isolators", 0}},
		{"Names and values", []any{"apps", 0, "annotations", 0}},
		{"Names and values", []any{"apps", 0, "image", "labels", 0}},
	} {
		for field, meaning := range described(t, tt.heading).meanings {
			pod, err := parse([]byte(wholePod))
			if err != nil {
				t.Fatal(err)
			}
			object := find(pod, tt.place).(map[string]any)
			if field == "volumes" || field == "ports" && tt.heading == "App section" {
				continue // a mount refers to a volume, and a port of the pod to an app's
			}
			if _, has := object[field]; !has {
				if strings.HasPrefix(meaning, "required:") || strings.HasPrefix(meaning, "required.") {
					t.Errorf("%s has no %s", placeText(tt.place), field)
				}
				continue
			}
			delete(object, field)
			text, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			if err := decided(t, string(text)); (err != nil) != strings.HasPrefix(meaning, "required") {
				t.Errorf("%s without %s, of which docs/pods.md says %q: %v", placeText(tt.place), field, meaning, err)
			}
		}
	}
}

// decided returns why the launcher, or the stager, refuses a pod.
func decided(t *testing.T, text string) error {
	t.Helper()
	plan, _, err := newPlanner().FromManifest("p.json", []byte(text), Options{})
	if err != nil {
		return err
	}
	m, err := manifest.Read(strings.NewReader(string(plan.Manifest)))
	if err != nil {
		return err
	}
	_, err = decision.Decide(m, spec.Support{}, nil, nil)
	return err
}
