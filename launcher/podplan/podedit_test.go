package podplan

import (
	"encoding/json"
	"strings"
	"testing"

	"kurma.io/stager/manifest"
)

func TestEditPodFindsFieldsInAnyCase(t *testing.T) {
	document := `{"acKind":"PodManifest","acVersion":"0.8.11","other":1,
		"Apps":[{"name":"a","IMAGE":{"name":"example.com/one","Id":""}}],
		"VOLUMES":[{"Name":"v","kind":"empty","ReadOnly":true}]}`
	id := "sha512-" + strings.Repeat("0123456789abcdef", 8)
	edited, err := editPod([]byte(document), []string{id}, Options{Volumes: map[string]string{"v": "/srv"}})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := manifest.DecodePod(edited)
	if err != nil {
		t.Fatalf("%v\n%s", err, edited)
	}
	if len(pod.Apps) != 1 || pod.Apps[0].Image.ID.String() != id {
		t.Errorf("apps %+v", pod.Apps)
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].Source != "/srv" || pod.Volumes[0].ReadOnly == nil || !*pod.Volumes[0].ReadOnly {
		t.Errorf("volumes %+v", pod.Volumes)
	}
	if !strings.Contains(string(edited), `"other":1`) {
		t.Errorf("an unknown field is lost: %s", edited)
	}
}

func TestEditPodRefusesAmbiguousFields(t *testing.T) {
	tests := []struct{ name, document, words string }{
		{"a field twice", `{"apps":[],"Apps":[]}`, `apps: given twice, as "Apps" and "apps"`},
		{"an app's image twice", `{"apps":[{"image":{},"Image":{}}]}`, `apps[0]: image: given twice`},
		{"an image's ID twice", `{"apps":[{"image":{"id":"","ID":""}}]}`, `apps[0].image: id: given twice`},
		{"no list", `{"Apps":{}}`, "Apps: json:"},
		{"not a JSON object", `null`, "not a JSON object"},
		{"no app", `{"apps":[null]}`, "apps[0]: no image"},
		{"an app without an image", `{"apps":[{"image":null}]}`, "apps[0]: no image"},
		{"volumes twice", `{"apps":[],"volumes":[],"Volumes":[]}`, "volumes: given twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := editPod([]byte(tt.document), []string{"x"}, Options{Volumes: map[string]string{"v": "/srv"}})
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

func TestHostNetworkIsPassedToTheStager(t *testing.T) {
	for name, tt := range map[string]struct{ isolators, want string }{
		"none":    {`null`, `[{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
		"another": {`[{"name":"x","value":1}]`, `[{"name":"x","value":1},{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
		"there": {
			`[{"Name":"os/linux/namespaces","Value":{"pid":"host"}}]`,
			`[{"Name":"os/linux/namespaces","value":{"net":"host","pid":"host"}}]`,
		},
		"twice": {
			`[{"name":"os/linux/namespaces","value":{"pid":"host"}},{"name":"os/linux/namespaces","value":{"net":""}}]`,
			`[{"name":"os/linux/namespaces","value":{"pid":"host"}},{"name":"os/linux/namespaces","value":{"net":"host"}}]`,
		},
		"null": {`[{"name":"os/linux/namespaces","value":null}]`, `[{"name":"os/linux/namespaces","value":{"net":"host"}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			edited, err := editPod([]byte(`{"apps":[],"isolators":`+tt.isolators+`}`), nil, Options{HostNetwork: true})
			if err != nil {
				t.Fatal(err)
			}
			var pod struct {
				Isolators json.RawMessage `json:"isolators"`
			}
			if err := json.Unmarshal(edited, &pod); err != nil || string(pod.Isolators) != tt.want {
				t.Errorf("isolators %s, %v; want %s", pod.Isolators, err, tt.want)
			}
		})
	}
	if _, err := editPod([]byte(`{"apps":[],"isolators":[{"name":"os/linux/namespaces","value":1}]}`), nil, Options{HostNetwork: true}); err == nil {
		t.Error("a value that is not an object is accepted")
	}
}
