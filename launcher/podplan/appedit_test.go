package podplan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"
)

// optionsImage is an image with an app; app is its section, "" for none.
func optionsImage(t *testing.T, app string) *images.Image {
	t.Helper()
	m := &images.Manifest{Name: "example.com/a", Raw: []byte(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a"}`)}
	if app != "" {
		m.Raw = []byte(strings.TrimSuffix(string(m.Raw), "}") + `,"app":` + app + `}`)
		m.App = new(images.App)
		if err := json.Unmarshal([]byte(app), m.App); err != nil {
			t.Fatal(err)
		}
	}
	return &images.Image{ID: "sha512-" + strings.Repeat("0123456789abcdef", 8), Manifest: m}
}

// encodedSection is the section in the pod's manifest.
func encodedSection(s section) ([]byte, error) {
	d := document{pod: &manifest.Pod{PodManifest: schema.BlankPodManifest(), AppIsolators: map[string][]manifest.Isolator{"a": s.isolators}}, unknown: s.unknown}
	app := schema.RuntimeApp{App: s.app}
	if err := errors.Join(app.Name.Set("a"), app.Image.ID.Set("sha512-"+strings.Repeat("0123456789abcdef", 8))); err != nil {
		return nil, err
	}
	d.pod.Apps = schema.AppList{app}
	text, err := d.encode()
	if err != nil {
		return nil, err
	}
	tree, err := parse(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(find(tree, []any{"apps", 0, "app"}))
}

func TestOptionsChangeAnImagesApp(t *testing.T) {
	const app = `{"exec":["/x","y"],"user":"7","group":"8","other":1,"environment":[{"name":"A","value":"b"},{"name":"B","value":"c"}]}`
	tests := []struct {
		name, app string
		args      []string
		options   AppOptions
		want      string
	}{
		{"arguments", app, []string{"z"}, AppOptions{}, `{"environment":[{"name":"A","value":"b"},{"name":"B","value":"c"}],"exec":["/x","y","z"],"group":"8","other":1,"user":"7"}`},
		{"another program", app, []string{"z"}, AppOptions{Exec: "/p"}, `{"environment":[{"name":"A","value":"b"},{"name":"B","value":"c"}],"exec":["/p","z"],"group":"8","other":1,"user":"7"}`},
		{"arguments alone", app, []string{"/z", "a"}, AppOptions{ArgsAlone: true}, `{"environment":[{"name":"A","value":"b"},{"name":"B","value":"c"}],"exec":["/z","a"],"group":"8","other":1,"user":"7"}`},
		{"arguments for an image without a program", `{"exec":[],"user":"7","group":"8"}`, []string{"/z"}, AppOptions{}, `{"exec":["/z"],"group":"8","user":"7"}`},
		{"arguments for an image without an app", "", []string{"/z"}, AppOptions{}, `{"exec":["/z"],"group":"0","user":"0"}`},
		{"a program for an image without an app", "", nil, AppOptions{Exec: "/p"}, `{"exec":["/p"],"group":"0","user":"0"}`},
		{"who and where", app, nil, AppOptions{User: "1", Group: "2", WorkingDirectory: "/w"}, `{"environment":[{"name":"A","value":"b"},{"name":"B","value":"c"}],"exec":["/x","y"],"group":"2","other":1,"user":"1","workingDirectory":"/w"}`},
		{"variables", app, nil, AppOptions{Env: []pods.Environment{{Name: "A", Value: "2"}, {Name: "C", Value: ""}}}, `{"environment":[{"name":"B","value":"c"},{"name":"A","value":"2"},{"name":"C","value":""}],"exec":["/x","y"],"group":"8","other":1,"user":"7"}`},
		{
			"limits", `{"exec":["/x"],"user":"0","group":"0","isolators":[{"name":"resource/memory","value":{"limit":"1Gi"}},{"name":"o","value":1}]}`, nil,
			AppOptions{Memory: "5Mi", CPU: "1.5"},
			`{"exec":["/x"],"group":"0","isolators":[{"name":"o","value":1},{"name":"resource/memory","value":{"limit":"5Mi"}},{"name":"resource/cpu","value":{"limit":"1.5"}}],"user":"0"}`,
		},
		{
			"all powers", `{"exec":["/x"],"user":"0","group":"0","isolators":[{"name":"os/linux/privileged","value":false},{"name":"` + removeIsolator + `","value":{"set":["CAP_KILL"]}}]}`, nil,
			AppOptions{Privileged: true, CapAdd: []string{"CAP_KILL"}},
			`{"exec":["/x"],"group":"0","isolators":[{"name":"os/linux/privileged","value":true}],"user":"0"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			section, err := editSection(optionsImage(t, tt.app), tt.args, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := encodedSection(section); err != nil || string(text) != tt.want {
				t.Errorf("%s, %v\nwant %s", text, err, tt.want)
			}
		})
	}
	for _, section := range []string{"", `{"exec":[],"user":"7","group":"8"}`} {
		if _, err := imagePod(optionsImage(t, section), "a", nil, AppOptions{}); err == nil || !strings.Contains(err.Error(), "has no program: name it and its arguments after --") {
			t.Errorf("an image with the section %q: %v", section, err)
		}
	}
	if _, err := imagePod(optionsImage(t, app), "a", nil, AppOptions{ArgsAlone: true}); err == nil || !strings.Contains(err.Error(), "has no program") {
		t.Errorf("no arguments in place of the image's program: %v", err)
	}
}

func TestCapabilitiesAreAddedAndDropped(t *testing.T) {
	defaults := spec.DefaultCapabilities()
	without := func(name string) []string {
		var left []string
		for _, c := range defaults {
			if c != name {
				left = append(left, c)
			}
		}
		return left
	}
	tests := []struct {
		name, isolators string
		add, drop       []string
		wantName        string
		want            []string
	}{
		{"dropped from the default set", `[]`, nil, []string{"CAP_CHOWN"}, retainIsolator, without("CAP_CHOWN")},
		{"all but one", `[]`, []string{"CAP_CHOWN"}, []string{"ALL"}, retainIsolator, []string{"CAP_CHOWN"}},
		{"all", `[]`, nil, []string{"ALL"}, removeIsolator, defaults},
		{"added to the image's", `[{"name":"` + retainIsolator + `","value":{"set":["CAP_KILL"]}}]`, []string{"CAP_CHOWN"}, nil, retainIsolator, []string{"CAP_CHOWN", "CAP_KILL"}},
		{"what the image drops and the person adds", `[{"name":"` + removeIsolator + `","value":{"set":["CAP_CHOWN"]}}]`, []string{"CAP_CHOWN"}, nil, retainIsolator, defaults},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			image := optionsImage(t, `{"exec":["/x"],"user":"0","group":"0","isolators":`+tt.isolators+`}`)
			section, err := editSection(image, nil, AppOptions{CapAdd: tt.add, CapDrop: tt.drop})
			if err != nil {
				t.Fatal(err)
			}
			var have []struct {
				Name  string
				Value struct{ Set []string }
			}
			text, err := json.Marshal(section.isolators)
			if err := errors.Join(err, json.Unmarshal(text, &have)); err != nil || len(have) != 1 || have[0].Name != tt.wantName {
				t.Fatalf("%+v, %v", have, err)
			}
			if diff := cmp.Diff(tt.want, have[0].Value.Set); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPathsAreMountedInEveryApp(t *testing.T) {
	document := `{"acKind":"PodManifest","acVersion":"0.8.11","volumes":[{"name":"launcher-path","kind":"empty"}],
		"apps":[{"name":"a","image":{},"mounts":[{"volume":"launcher-path","path":"/own"}]},{"name":"b","image":{}}]}`
	pod, err := editPod(document, Options{Mounts: []Mount{{Source: "/host", Target: "/in", ReadOnly: true}, {Source: "/more", Target: "/more"}}})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, v := range pod.Volumes {
		have = append(have, v.Name.String()+" "+v.Source)
	}
	for _, app := range pod.Apps {
		for _, m := range app.Mounts {
			have = append(have, app.Name.String()+": "+m.Volume.String()+" "+m.Path)
		}
	}
	want := []string{
		"launcher-path ", "launcher-path-2 /host", "launcher-path-3 /more",
		"a: launcher-path /own", "a: launcher-path-2 /in", "a: launcher-path-3 /more", "b: launcher-path-2 /in", "b: launcher-path-3 /more",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if pod.Volumes[1].ReadOnly == nil || !*pod.Volumes[1].ReadOnly {
		t.Error("the first path is writable")
	}
}

func TestUnknownKeysAreNamedWithTheirPlace(t *testing.T) {
	for document, want := range map[string][]string{
		`{"acKind":"x","AppS":[{"image":{"NAME":"x"}}]}`:                                    nil,
		`{"volums":[],"x-custom":1}`:                                                        {`f: unknown key "volums", ignored; did you mean "volumes"?`, `f: unknown key "x-custom", ignored`},
		`{"apps":[{},{"app":{"enviroment":[]}}]}`:                                           {`f: unknown key "enviroment" in apps[1].app, ignored; did you mean "environment"?`},
		`{"apps":[{"nmae":"a","image":{"di":""}}]}`:                                         {`f: unknown key "di" in apps[0].image, ignored; did you mean "id"?`, `f: unknown key "nmae" in apps[0], ignored; did you mean "name"?`},
		`{"apps":[{"mounts":[{"appVolume":{"src":""}}]}]}`:                                  {`f: unknown key "src" in apps[0].mounts[0].appVolume, ignored`},
		`{"isolators":[{"name":"x","value":{"anything":1}}],"userLabels":{"anything":"x"}}`: nil,
		`[`: nil,
	} {
		if diff := cmp.Diff(want, unknownWarnings("f", unknownKeys([]byte(document), podKeys()))); diff != "" {
			t.Errorf("%s: %s", document, diff)
		}
	}
}

func TestCapabilitiesHaveTheirNamesInManifests(t *testing.T) {
	for text, want := range map[string]string{
		"NET_ADMIN": "CAP_NET_ADMIN", "cap_chown": "CAP_CHOWN", "Checkpoint_Restore": "CAP_CHECKPOINT_RESTORE", "all": "ALL",
	} {
		if got, err := Capability(text); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "CAP_", "FOO", "NET ADMIN", "CAP_CAP_CHOWN", "CAP_ALL", strings.Repeat("x", 1000)} {
		if got, err := Capability(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestOptionsForStdinTerminalAndHealthAreAnnotations(t *testing.T) {
	want := types.Annotations{{Name: names.StdinAnnotation, Value: "stream"}, {Name: names.TTYAnnotation, Value: "true"}}
	both := AppOptions{Stdin: true, TTY: true}
	if diff := cmp.Diff(want, both.annotations()); diff != "" {
		t.Error(diff)
	}
	want = types.Annotations{{Name: names.TTYAnnotation, Value: "true"}, {Name: names.TTYSizeAnnotation, Value: "101x33"}}
	sized := AppOptions{TTY: true, TTYSize: "101x33"}
	if diff := cmp.Diff(want, sized.annotations()); diff != "" {
		t.Error(diff)
	}
	want = types.Annotations{{Name: names.StdinAnnotation, Value: "once"}}
	once := AppOptions{Stdin: true, StdinOnce: true}
	if diff := cmp.Diff(want, once.annotations()); diff != "" {
		t.Error(diff)
	}
	want = types.Annotations{{Name: names.HealthCommandAnnotation, Value: "x"}, {Name: names.HealthRetriesAnnotation, Value: "1"}}
	checked := AppOptions{Health: map[string]string{names.HealthRetriesAnnotation: "1", names.HealthCommandAnnotation: "x"}}
	if diff := cmp.Diff(want, checked.annotations()); diff != "" {
		t.Error(diff)
	}
	if all := new(AppOptions).annotations(); all != nil {
		t.Errorf("without options: %v", all)
	}
}
