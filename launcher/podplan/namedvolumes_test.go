package podplan

import (
	"errors"
	"path"
	"strings"
	"testing"

	"kurma.io/stager/launcher/pods"

	"github.com/google/go-cmp/cmp"
)

// named are volumes below a folder.
type named struct{ dir string }

func (n named) Path(name string) string { return path.Join(n.dir, name, "data") }

func (n named) NameOf(at string) (string, bool) {
	name := path.Base(path.Dir(at))
	return name, at == n.Path(name)
}

// A named volume is, for the stager, a host volume with the folder of its files, which need not exist.
func TestNamedVolumesAreHostVolumes(t *testing.T) {
	p := newPlanner()
	p.Volumes = named{"/volumes"}
	p.CheckSource = func(source string) error { return errors.New(source + " does not exist") }
	document := `{"acKind":"PodManifest","acVersion":"0.8.11",
		"volumes":[{"name":"v","Kind":"named","source":"Some_data.1","readOnly":true}],
		"apps":[{"name":"a","image":{"name":"example.com/my_app.1"},
			"mounts":[{"volume":"v","path":"/v/"},{"volume":"v","path":"o","appVolume":{"name":"v","kind":"named","source":"other"}}],
			"app":{"exec":["/x"],"user":"0","group":"0","mountPoints":[{"name":"v","path":"/v"},{"name":"v","path":"/w"}]}}]}`
	plan, warnings, err := p.FromManifest("p.json", []byte(document), Options{Mounts: []Mount{{Volume: "third", Target: "/third"}}})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := []pods.Volume{
		{Name: "v", Source: "/volumes/Some_data.1/data", ReadOnly: true},
		{Name: "launcher-path", Source: "/volumes/third/data"},
		{Name: "v-2", Source: "/volumes/other/data"},
	}
	if diff := cmp.Diff(want, plan.Volumes); diff != "" {
		t.Error(diff)
	}
	targets, err := Targets(plan)
	if err != nil {
		t.Fatal(err)
	}
	layers := []string{imageID(1), imageID(2)}
	if diff := cmp.Diff(map[string][]Target{
		"v": {{layers, "/v"}, {layers, "/w"}}, "v-2": {{layers, "/o"}}, "launcher-path": {{layers, "/third"}},
	}, targets); diff != "" {
		t.Error(diff)
	}
}

// A wrong name of a volume is an error that names the field.
func TestNamesOfVolumesAreChecked(t *testing.T) {
	for _, tt := range []struct{ volume, want string }{
		{`{"name":"v","kind":"named","source":"../x"}`, `pod.volumes[0].source: "../x": want letters`},
		{`{"name":"v","kind":"named","source":"/x"}`, `pod.volumes[0].source: "/x": want letters`},
		{`{"name":"v","kind":"named","source":7}`, `pod.volumes[0].source: "": want letters`},
		{`{"name":"v","kind":"named"}`, `pod.volumes[0].source: "": want letters`},
	} {
		p := newPlanner()
		p.Volumes = named{"/volumes"}
		document := `{"acKind":"PodManifest","acVersion":"0.8.11","volumes":[` + tt.volume + `],"apps":[{"name":"a","image":{"name":"example.com/my_app.1"}}]}`
		_, _, err := p.FromManifest("p.json", []byte(document), Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.volume, err, tt.want)
		}
	}
}
