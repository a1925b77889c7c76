package unionfs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/unionfs"
)

func TestFiltersKeepWhatWhitelistsSelect(t *testing.T) {
	list := func(paths ...string) []string { return paths }
	tests := []struct {
		name   string
		images []unionfs.Image
		// kept has, per image, what stays of the files /a /b /c and the directory /d.
		kept []string
	}{
		{"no whitelist", []unionfs.Image{{}, {Dependents: []int{0}}}, list("all", "all")},
		{"an empty one is none", []unionfs.Image{{Whitelist: list()}}, list("all")},
		{"own, directories stay", []unionfs.Image{{Whitelist: list("/a")}}, list("a d")},
		{"own, unclean", []unionfs.Image{{Whitelist: list("//a/", "/x/../b", "c")}}, list("a b c d")},
		{
			"of the image above, directories too",
			[]unionfs.Image{{Whitelist: list("/a")}, {Dependents: []int{0}}},
			list("a d", "a"),
		},
		{
			"directory listed above",
			[]unionfs.Image{{Whitelist: list("/d")}, {Dependents: []int{0}}},
			list("d", "d"),
		},
		{
			"own and above",
			[]unionfs.Image{{Whitelist: list("/a", "/b")}, {Whitelist: list("/b", "/c"), Dependents: []int{0}}},
			list("a b d", "b"),
		},
		{
			"two levels above, all of them",
			[]unionfs.Image{{Whitelist: list("/a", "/b")}, {Whitelist: list("/b", "/d"), Dependents: []int{0}}, {Dependents: []int{1}}},
			list("a b d", "b", "b"),
		},
		{
			"nothing in common",
			[]unionfs.Image{{Whitelist: list("/a")}, {Whitelist: list("/b"), Dependents: []int{0}}, {Dependents: []int{1}}},
			list("a d", "", ""),
		},
		{
			"a sibling's does not matter",
			[]unionfs.Image{{}, {Whitelist: list("/a"), Dependents: []int{0}}, {Dependents: []int{0}}},
			list("all", "a d", "all"),
		},
		{
			"two ways, one open",
			[]unionfs.Image{{}, {Whitelist: list("/a"), Dependents: []int{0}}, {Dependents: []int{0}}, {Dependents: []int{1, 2}}},
			list("all", "a d", "all", "all"),
		},
		{
			"two ways, one from below",
			[]unionfs.Image{{}, {Whitelist: list("/a"), Dependents: []int{0}}, {Dependents: []int{1, 3}}, {Whitelist: list("/b"), Dependents: []int{0}}},
			list("all", "a d", "a b", "b d"),
		},
		{
			"two ways, both filtered",
			[]unionfs.Image{{}, {Whitelist: list("/a"), Dependents: []int{0}}, {Whitelist: list("/b", "/d"), Dependents: []int{0}}, {Dependents: []int{1, 2}}},
			list("all", "a d", "b d", "a b d"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			filters, err := unionfs.Filters(tt.images)
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, f := range filters {
				kept = append(kept, keptBy(f))
			}
			if diff := cmp.Diff(tt.kept, kept); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func keptBy(f *unionfs.Filter) string {
	if f == nil {
		return "all"
	}
	var kept []string
	for _, p := range []string{"a", "b", "c", "d"} {
		if f.Keeps(p, p == "d") {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}

func TestFiltersRefuseAWrongTree(t *testing.T) {
	for _, dependent := range []int{-1, 1, 2} {
		_, err := unionfs.Filters([]unionfs.Image{{}, {Dependents: []int{0, dependent}}})
		if err == nil || !strings.Contains(err.Error(), "image 1 ") {
			t.Errorf("dependent %d: %v", dependent, err)
		}
	}
}

func TestDistinctKeepsTheFirstOfEqualLayers(t *testing.T) {
	filter := func(whitelist ...string) *unionfs.Filter {
		f, err := unionfs.Filters([]unionfs.Image{{Whitelist: whitelist}})
		if err != nil {
			t.Fatal(err)
		}
		return f[0]
	}
	a, b := filter("/a"), filter("/b")
	in := []unionfs.Layer{{"/A", nil}, {"/D", a}, {"/A/", nil}, {"/D", b}, {"/B", nil}, {"/D", filter("/a")}, {"/D", nil}}
	want := []unionfs.Layer{in[0], in[1], in[3], in[4], in[6]}
	got := unionfs.Distinct(in)
	if len(got) != len(want) {
		t.Fatalf("%d layers are left, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("layer %d is %v, want %v", i, got[i], want[i])
		}
	}
}
