package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
)

func TestTheMetadataIsThatOfThePod(t *testing.T) {
	id := "sha512-" + strings.Repeat("a", 128)
	image := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/db","annotations":[{"name":"lorem","value":"ipsum"}],
		"app":{"exec":["/db"],"user":"0","group":"0","ports":[{"name":"db","protocol":"tcp","port":5432},{"name":"more","protocol":"tcp","port":6000,"count":10}],
		"isolators":[{"name":"example.com/unknown","value":1}]}}`
	pod := `{"acVersion":"0.8.11","acKind":"PodManifest","annotations":[],
		"apps":[{"name":"db","image":{"id":"` + id + `"}},{"name":"db2","image":{"id":"` + id + `"},"annotations":[{"name":"lorem","value":"dolor"}]}],
		"ports":[{"name":"db","hostPort":40000,"podPort":{"name":"db","protocol":"tcp","port":41000}}],
		"isolators":[{"name":"example.com/unknown","value":1}],"userAnnotations":{"` + names.TTYAnnotation + `":"true"}}`
	m, err := manifest.Read(strings.NewReader(`{"kurmaVersion":"0.4.1","name":"n","pod":` + pod + `,"images":{"` + id + `":` + image + `},
		"appImageOrder":{"db":["` + id + `"],"db2":["` + id + `"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	lorem := func(value string) []Annotation {
		return []Annotation{{Name: "lorem", Value: value}}
	}
	app := AppMetadata{Name: "db", ImageID: id, ImageManifest: []byte(image), ImageAnnotations: lorem("ipsum")}
	app2 := app
	app2.Name, app2.Annotations = "db2", lorem("dolor")
	want := Metadata{
		Manifest: []byte(pod), Annotations: []Annotation{}, Apps: []AppMetadata{app, app2},
		Ports: []PortRange{
			{First: 40000, Count: 1},
			{First: 41000, Count: 1},
			{First: 5432, Count: 1},
			{First: 6000, Count: 10},
			{First: 5432, Count: 1},
			{First: 6000, Count: 10},
		},
	}
	// Documents are the same by what they say.
	document := cmp.Transformer("JSON", func(b []byte) (v any) {
		if err := json.Unmarshal(b, &v); err != nil {
			t.Error(err)
		}
		return v
	})
	if diff := cmp.Diff(want, metadataOf(m, m.Apps()), document); diff != "" {
		t.Error(diff)
	}
}

// The pod has the UUID of the daemon's cgroup if the cgroup's name is a UUID.
func TestPodTakesTheUUIDOfTheDaemon(t *testing.T) {
	clause.Covers(t, "C-ID-01")
	const id = "5a79dc18-6c71-42c5-be9e-0b25408a2124"
	for cgroups, taken := range map[string]bool{
		"9:pids:/kurma/" + id + "\n0::/\n":                             true,
		"0::/kurma/" + id + "\n":                                       true,
		"0::/kurma/" + id + names.LeafCgroup + "\n":                    true,
		"0::/kurma/" + id + names.LeafCgroup + names.LeafCgroup + "\n": false,
		"9:pids:/kurma/" + id + names.LeafCgroup + "\n":                false,
		"0::/kurma/" + id[1:] + "\n":                                   false,
		"0::/" + strings.ToUpper(id) + "\n":                            false,
		"0::/{" + id + "}\n":                                           false,
		"0::/" + strings.ReplaceAll(id, "b", "z"):                      false,
		"": false,
	} {
		if got := PodUUID(cgroups); (got == id) != taken || len(got) != len(id) {
			t.Errorf("%q: UUID %s", cgroups, got)
		}
	}
}
