package podplan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
)

// editPod gives each app the same image, edits the pod as the options say, and returns what a stager reads.
func editPod(text string, o Options) (*manifest.Pod, error) {
	d := document{unknown: unknownKeys([]byte(text), podKeys())}
	var err error
	if d.pod, err = manifest.DecodePod([]byte(text)); err != nil {
		return nil, err
	}
	for i := range d.pod.Apps {
		if err := d.pod.Apps[i].Image.ID.Set("sha512-" + strings.Repeat("0123456789abcdef", 8)); err != nil {
			return nil, err
		}
	}
	if err := d.edit(o); err != nil {
		return nil, err
	}
	encoded, err := d.encode()
	if err != nil {
		return nil, err
	}
	return manifest.DecodePod(encoded)
}

func TestEditPodFindsFieldsInAnyCase(t *testing.T) {
	pod, err := editPod(`{"acKind":"PodManifest","acVersion":"0.8.11",
		"Apps":[{"name":"a","IMAGE":{"Name":"example.com/one"}}],
		"VOLUMES":[{"Name":"v","kind":"empty","ReadOnly":true}]}`, Options{Volumes: map[string]string{"v": "/srv"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Apps) != 1 || pod.Apps[0].Image.ID.Empty() {
		t.Errorf("apps %+v", pod.Apps)
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].Source != "/srv" || pod.Volumes[0].ReadOnly == nil || !*pod.Volumes[0].ReadOnly {
		t.Errorf("volumes %+v", pod.Volumes)
	}
}

// The stager gets every key, where it was, unless the options replace its object.
func TestUnknownKeysStay(t *testing.T) {
	pod, err := editPod(`{"acKind":"PodManifest","acVersion":"0.8.11","other":12345678901234567890,
		"isolators":[{"name":"x","value":{"a":null},"odd":true}],
		"apps":[{"name":"a","image":{"odd":1},"odd":[null],"App":{"exec":["/x"],"user":"0","group":"0","odd":{"a":1},"isolators":[{"name":"y","value":2}]},
			"mounts":[{"volume":"v","path":"/v","appVolume":{"name":"v","kind":"host","source":"/v","odd":1}}]}],
		"volumes":[{"name":"w","kind":"empty","odd":1},{"name":"v","kind":"empty","odd":1}]}`, Options{Volumes: map[string]string{"w": "/w"}})
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	const text = `{"acKind":"PodManifest","acVersion":"0.8.11","other":12345678901234567890,"isolators":[{"name":"x","value":{"a":null},"odd":true}],
		"apps":[{"name":"a","image":{"id":"sha512-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","odd":1},
			"odd":[null],"app":{"exec":["/x"],"user":"0","group":"0","odd":{"a":1},"isolators":[{"name":"y","value":2}]},
			"mounts":[{"volume":"v","path":"/v","appVolume":{"name":"v-2","kind":"host","source":"/v","odd":1}}]}],
		"volumes":[{"name":"w","kind":"host","source":"/w"},{"name":"v","kind":"empty","mode":"0755","uid":0,"gid":0,"odd":1}]}`
	if err := errors.Join(json.Unmarshal(pod.JSON, &got), json.Unmarshal([]byte(text), &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(string(pod.JSON), "12345678901234567890") {
		t.Errorf("%s\n%s", diff, pod.JSON)
	}
}

func TestWrongManifestsAreNamedByTheirFields(t *testing.T) {
	const kind = `{"acKind":"PodManifest","acVersion":"0.8.11",`
	tests := []struct{ name, document, words string }{
		{"a field twice", kind + `"apps":[],"Apps":[]}`, `apps: given twice, as "Apps" and "apps"`},
		{"an app's image twice", kind + `"apps":[{"name":"a","image":{},"Image":{}}]}`, `apps[0].image: given twice`},
		{"an image's name twice", kind + `"apps":[{"name":"a","image":{"name":"a","NAME":"b"}}]}`, `apps[0].image.name: given twice`},
		{"no list", kind + `"Apps":{}}`, "Apps: {}: must be a list"},
		{"not a JSON object", `null`, "missing or bad ACKind"},
		{"no app", kind + `"apps":[null]}`, "neither ID nor name"},
		{"volumes twice", kind + `"apps":[],"volumes":[],"Volumes":[]}`, "volumes: given twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := newPlanner().FromManifest("f", []byte(tt.document), Options{})
			if err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

func TestPoliciesOfThePodAreInItsStagerConfig(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		options      Options
		want         string
	}{
		{"nothing", ``, Options{}, ``},
		{"the configuration's", `{"gracePeriod":"1s"}`, Options{}, `{"gracePeriod":"1s"}`},
		{"a default", ``, Options{DefaultExit: "all"}, `{"exitPolicy":"all"}`},
		{"a default beside others", `{"gracePeriod":"1s"}`, Options{DefaultExit: "all"}, `{"exitPolicy":"all","gracePeriod":"1s"}`},
		{"the configuration overrides the default", `{"ExitPolicy":"never"}`, Options{DefaultExit: "all"}, `{"ExitPolicy":"never"}`},
		{"an option overrides the configuration", `{"ExitPolicy":"never"}`, Options{DefaultExit: "all", ExitPolicy: "failure"}, `{"exitPolicy":"failure"}`},
		{"restart", `{"restart":"never"}`, Options{Restart: "always"}, `{"restart":"always"}`},
		{"time to stop", `{"GracePeriod":"1s"}`, Options{GracePeriod: "90s"}, `{"gracePeriod":"90s"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := stagerConfig(json.RawMessage(tt.config), tt.options); err != nil || string(got) != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
	if _, err := stagerConfig(json.RawMessage(`[]`), Options{Restart: "always"}); err == nil {
		t.Error("a list is accepted")
	}
}

// A stager that waits for its apps as long as it is told is not killed meanwhile.
func TestAStagerMayTakeLongerThanItsAppsTo(t *testing.T) {
	for config, want := range map[string]time.Duration{
		``: stopTimeout, `null`: stopTimeout, `{"gracePeriod":"0s"}`: stopTimeout, `{"gracePeriod":"x"}`: stopTimeout, `{"gracePeriod":1}`: stopTimeout,
		`{"GracePeriod":"2m"}`: 2*time.Minute + stopMargin,
	} {
		if got := timeToStop(json.RawMessage(config)); got != want {
			t.Errorf("%s: %s, want %s", config, got, want)
		}
	}
	plan, _, err := newPlanner().FromImage("example.com/my_app.1", nil, Options{GracePeriod: "90s"})
	if want := 90*time.Second + stopMargin; err != nil || plan.StopTimeout != want {
		t.Errorf("%s, %v, want %s", plan.StopTimeout, err, want)
	}
}

func TestLabelsOfTheOptionsAreThePods(t *testing.T) {
	pod, err := editPod(`{"acKind":"PodManifest","acVersion":"0.8.11","userLabels":{"a":"1","b":"2"},"apps":[{"name":"a","image":{"name":"example.com/one"}}]}`,
		Options{Labels: map[string]string{"b": "x=y", "c": ""}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(types.UserLabels{"a": "1", "b": "x=y", "c": ""}, pod.UserLabels); diff != "" {
		t.Error(diff)
	}
}

// The stager takes a folder of the launcher for an empty volume only if its stagerConfig names the volume.
func TestEmptyVolumesOfThePodAreInItsStagerConfig(t *testing.T) {
	volumes := []types.Volume{{Name: "a", Kind: "empty"}, {Name: "h", Kind: "host", Source: "/"}, {Name: "b", Kind: "empty"}}
	for _, tt := range []struct {
		config  string
		volumes []types.Volume
		want    string
	}{
		{``, nil, ``},
		{`{"PodVolumes":["x"]}`, volumes[1:2], `{"PodVolumes":["x"]}`},
		{``, volumes, `{"podVolumes":["a","b"]}`},
		{`{"PodVolumes":["x"],"restart":"always"}`, volumes, `{"podVolumes":["a","b"],"restart":"always"}`},
	} {
		if got, err := withPodVolumes(json.RawMessage(tt.config), tt.volumes); err != nil || string(got) != tt.want {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
	if _, err := withPodVolumes(json.RawMessage(`[]`), volumes); err == nil {
		t.Error("a list is accepted")
	}
}

func TestHostNetworkIsPassedToTheStager(t *testing.T) {
	const pod = `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[],"isolators":`
	for name, tt := range map[string]struct{ isolators, want string }{
		"none":    {`null`, `[{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
		"another": {`[{"name":"x","value":1}]`, `[{"name":"x","value":1},{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
		"there": {
			`[{"Name":"os/linux/namespaces","Value":{"pid":"host"}}]`,
			`[{"name":"os/linux/namespaces","value":{"net":"host","pid":"host"}}]`,
		},
		"twice": {
			`[{"name":"os/linux/namespaces","value":{"pid":"host"}},{"name":"os/linux/namespaces","value":{"net":""}}]`,
			`[{"name":"os/linux/namespaces","value":{"pid":"host"}},{"name":"os/linux/namespaces","value":{"net":"host"}}]`,
		},
		"null": {`[{"name":"os/linux/namespaces","value":null}]`, `[{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			edited, err := editPod(pod+tt.isolators+`}`, Options{HostNetwork: true})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(edited.Isolators); err != nil || string(got) != tt.want {
				t.Errorf("isolators %s, %v; want %s", got, err, tt.want)
			}
			d := document{pod: edited}
			if !d.hasHostNetwork() {
				t.Error("it is not found again")
			}
		})
	}
	if _, err := editPod(pod+`[{"name":"os/linux/namespaces","value":1}]}`, Options{HostNetwork: true}); err == nil {
		t.Error("a value that is not an object is accepted")
	}
}

// What appc's types refuse in an option is refused before anything is started.
func TestWrongOptionsAreRefused(t *testing.T) {
	for words, o := range map[string]Options{
		`environment variable does not have valid identifier "A B"`: {App: AppOptions{Env: []pods.Environment{{Name: "A B"}}}},
		"workingDirectory must be an absolute path":                 {App: AppOptions{WorkingDirectory: "x"}},
		"source for host volume must be absolute path":              {Volumes: map[string]string{"x": "y"}},
	} {
		_, _, err := newPlanner().FromImage("example.com/my_app.1", nil, o)
		if want := `pod "my-app-1": ` + words; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
