package images

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/clause"
)

// tree makes images of "A: B C" lines: A depends on B and C.
func tree(text string) map[string]*Image {
	all := make(map[string]*Image)
	image := func(name string) *Image {
		if all[name] == nil {
			all[name] = &Image{ID: name, Manifest: &Manifest{Name: name}}
		}
		return all[name]
	}
	for line := range strings.SplitSeq(text, "\n") {
		name, deps, _ := strings.Cut(line, ":")
		top := image(name)
		for dep := range strings.FieldsSeq(deps) {
			image(dep)
			top.Manifest.Dependencies = append(top.Manifest.Dependencies, Dependency{Name: dep})
		}
	}
	return all
}

func TestLayersAreInDepthFirstOrder(t *testing.T) {
	tests := []struct{ name, clauses, tree, want, err string }{
		{"one", "", "A:", "A", ""},
		{"chain", "", "A: B\nB: C", "A B C", ""},
		{"first example", "C-FS-03", "A: B C\nC: D", "A C D B", ""},
		{"second example", "C-FS-03", "A: B C\nB: D\nC: D", "A C D B", ""},
		{"the topmost place counts", "", "A: D B\nB: D", "A B D", ""},
		{"itself", "", "A: A", "", "depends on itself"},
		{"a circle", "", "A: B\nB: C\nC: B", "", "depends on itself"},
		{"two ways up are not a circle", "", "A: B C\nB: D\nC: D\nD: E", "A C D E B", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clause.Covers(t, tt.clauses)
			var all []*Image
			named := tree(tt.tree)
			for _, image := range named {
				all = append(all, image)
			}
			order, err := layers(all, named["A"], (&Catalog{}).choose)
			var got []string
			for _, image := range order {
				got = append(got, image.ID)
			}
			if tt.err == "" && (err != nil || strings.Join(got, " ") != tt.want) {
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

func TestDependencyMustMatch(t *testing.T) {
	base := &Image{ID: "sha512-b", Manifest: &Manifest{Name: "base", Labels: map[string]string{"version": "2", "kind": "b"}}}
	tests := []struct {
		name string
		dep  Dependency
		ok   bool
	}{
		{"name", Dependency{Name: "base"}, true},
		{"name and label", Dependency{Name: "base", Labels: map[string]string{"version": "2"}}, true},
		{"ID", Dependency{Name: "base", ID: "sha512-b"}, true},
		{"other name", Dependency{Name: "bass"}, false},
		{"other label", Dependency{Name: "base", Labels: map[string]string{"version": "1"}}, false},
		{"label it has not", Dependency{Name: "base", Labels: map[string]string{"os": "linux"}}, false},
		{"other ID", Dependency{Name: "base", ID: "sha512-c"}, false},
		{"ID of another name", Dependency{Name: "bass", ID: "sha512-b"}, false},
		{"ID and other label", Dependency{Name: "base", ID: "sha512-b", Labels: map[string]string{"version": "1"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := &Image{ID: "top", Manifest: &Manifest{Name: "top", Dependencies: []Dependency{tt.dep}}}
			if _, err := layers([]*Image{base, top}, top, (&Catalog{}).choose); (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A manifest of many labels costs a list of images little time, whether the dependency with the labels is there or not.
func TestManyLabelsTakeLittle(t *testing.T) {
	var labels strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&labels, `,{"name":"l%d","value":"v"}`, i)
	}
	const manifest = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":%q,"labels":[%s],"dependencies":[%s]}`
	parse := func(name, labels, dependency string) *Image {
		m, err := parseManifest(fmt.Appendf(nil, manifest, name, labels, dependency))
		if err != nil {
			t.Fatal(err)
		}
		return &Image{ID: name, Manifest: m}
	}
	list := labels.String()[1:]
	base := parse("base", list, "")
	top := parse("top", "", `{"imageName":"base","labels":[`+list+`]}`)
	begin := time.Now()
	if _, err := layers([]*Image{base, top}, top, (&Catalog{}).choose); err != nil {
		t.Error(err)
	}
	_, err := layers([]*Image{top}, top, (&Catalog{}).choose)
	if took := time.Since(begin); err == nil || len(err.Error()) > 1000 || took > 5*time.Second {
		t.Errorf("%v: %.1000v", took, err)
	}
}
