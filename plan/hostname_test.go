package plan

import (
	"strings"
	"testing"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"

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
			if got := hostnameOf(test.name); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			} else if err := CheckHostname(got); got != "" && err != nil {
				t.Errorf("%q: %v", got, err)
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
