package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
)

func TestTheHostnameIsMadeFromThePodsName(t *testing.T) {
	tests := []struct{ name, want string }{
		{"", ""},
		{"example1", "example1"},
		{"Example.org", "Example.org"},
		{"a b/c\n", "a-b-c"},
		{"..", ""},
		{strings.Repeat("x", 63) + "-y", strings.Repeat("x", 63)},
		{strings.Repeat("é", 40), ""},
		{strings.Repeat("x", 64), strings.Repeat("x", 63)},
		{"a.-b-..c", "a.b.c"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := HostnameOf(test.name); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			} else if err := CheckHostname(got); got != "" && err != nil {
				t.Errorf("%q: %v", got, err)
			}
		})
	}
}

// The app of an image of Docker finds the name of its host in HOSTNAME, unless the image or the user sets it.
func TestAnAppOfADockerImageHasItsHostname(t *testing.T) {
	host := spec.Support{Hostname: "machine"}
	for _, test := range []struct {
		name      string
		converted bool
		change    func(*manifest.Manifest)
		want      []string
	}{
		{"no image of Docker", false, func(*manifest.Manifest) {}, nil},
		{"the pod's name", true, func(m *manifest.Manifest) { m.Name = "my_pod" }, []string{"HOSTNAME=my-pod"}},
		{"no name", true, func(*manifest.Manifest) {}, []string{"HOSTNAME=machine"}},
		{"the pod's annotation", true, func(m *manifest.Manifest) {
			m.Pod.Annotations.Set(names.HostnameAnnotation, "db.example")
		}, []string{"HOSTNAME=db.example"}},
		{"the host's namespace", true, func(m *manifest.Manifest) {
			m.Pod.Isolators = append(m.Pod.Isolators, manifest.Isolator{Name: "os/linux/namespaces", Value: json.RawMessage(`{"uts": "host"}`)})
		}, []string{"HOSTNAME=machine"}},
		{"the app's own", true, func(m *manifest.Manifest) {
			m.Apps()[0].App.Environment.Set("HOSTNAME", "own")
		}, []string{"HOSTNAME=own"}},
		{"the annotation's", true, func(m *manifest.Manifest) {
			m.Pod.Apps[0].Annotations.Set(names.EnvironmentAnnotation, `["HOSTNAME=set"]`)
		}, []string{"HOSTNAME=set"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := manifest.Read(strings.NewReader(example(t)))
			if err != nil {
				t.Fatal(err)
			}
			if test.converted {
				m.Apps()[0].Image.Annotations.Set(names.EntrypointAnnotation, "[]")
			}
			test.change(m)
			pod, err := Decide(m, host, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			app := pod.Apps[0]
			for what, env := range map[string][]string{"app": app.Spec.Process.Env, "command": pod.CommandEnv(app.Name)} {
				own := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return !strings.HasPrefix(v, "HOSTNAME=") })
				if !slices.Equal(own, test.want) {
					t.Errorf("%s: %q, want %q", what, own, test.want)
				}
			}
		})
	}
}

// A pod's annotation names its host; the pod does not start with a name that no host can have, or with one for the
// host's own UTS namespace.
func TestTheHostnameOfThePodsAnnotation(t *testing.T) {
	host := Namespaces{HostUTS: true}
	tests := []struct {
		name       string
		namespaces Namespaces
		want       string // "" for an error
	}{
		{"web", Namespaces{}, "web"},
		{"db-1.Example.org", Namespaces{}, "db-1.Example.org"},
		{strings.Repeat("x", 63), Namespaces{}, strings.Repeat("x", 63)},
		{strings.Repeat("x", 64), Namespaces{}, ""},
		{strings.Repeat("x.", 32) + "x", Namespaces{}, ""},
		{"", Namespaces{}, ""},
		{"a..b", Namespaces{}, ""},
		{"a.", Namespaces{}, ""},
		{"-a", Namespaces{}, ""},
		{"a-.b", Namespaces{}, ""},
		{"a_b", Namespaces{}, ""},
		{"a b", Namespaces{}, ""},
		{"a\n", Namespaces{}, ""},
		{"é", Namespaces{}, ""},
		{"web", host, ""},
	}
	for _, tt := range tests {
		pod := &manifest.Pod{PodManifest: &schema.PodManifest{Annotations: types.Annotations{{Name: names.HostnameAnnotation, Value: tt.name}}}}
		got, err := hostname(&manifest.Manifest{Name: "pod", Pod: pod}, tt.namespaces)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%q: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}
