package unionfstest

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

func TestMain(m *testing.M) { Main(m) }

// caseNamed returns the case with a name.
func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, c := range cases() {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("there is no case %q", name)
	return testCase{}
}

// reportsOf returns what do reports to a test.
func reportsOf(t *testing.T, do func(testing.TB)) []string {
	t.Helper()
	a := &attempt{TB: t}
	a.do(func() { do(a) })
	if a.failed != (len(a.reports) > 0) {
		t.Errorf("failed is %t after reports %q", a.failed, a.reports)
	}
	return a.reports
}

func TestDeclarations(t *testing.T) {
	tests := []struct {
		name  string
		unmet Unmet
		says  string // "" for no report
	}{
		{"none", nil, ""},
		{"a case", Unmet{"hard links": "it copies each name"}, ""},
		{"unknown name", Unmet{"hard link": "it copies each name"}, `"hard link", which is not a case`},
		{"empty reason", Unmet{"hard links": " "}, `"hard links" without a reason`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reports := strings.Join(reportsOf(t, func(tb testing.TB) { checkDeclared(tb, tt.unmet) }), "\n")
			if tt.says == "" && reports != "" || !strings.Contains(reports, tt.says) {
				t.Errorf("reported %q, want %q", reports, tt.says)
			}
		})
	}
}

func TestDeclaredCaseThatPassesFails(t *testing.T) {
	reports := reportsOf(t, func(tb testing.TB) {
		runUnmet(tb, unionfs.Copy{}, caseNamed(t, "directories merge"), "it shows one layer")
	})
	want := `copy passes "directories merge", which it declares not to meet: it shows one layer`
	if len(reports) != 1 || reports[0] != want {
		t.Errorf("reported %q, want %q", reports, want)
	}
}

// topmost is a driver that mounts the topmost layer alone.
type topmost struct{ unionfs.Copy }

func (d topmost) Mount(ctx context.Context, r unionfs.Root) error {
	if len(r.Layers) > 1 {
		r.Layers = r.Layers[:1]
	}
	return d.Copy.Mount(ctx, r)
}

func TestDeclaredCaseThatFailsPasses(t *testing.T) {
	var device uint64
	reports := reportsOf(t, func(tb testing.TB) {
		merge := caseNamed(t, "directories merge")
		run := merge.run
		merge.run = func(b *bench) {
			var st unix.Stat_t
			must(b.t, unix.Stat(b.dir, &st))
			device = st.Dev
			run(b)
		}
		runUnmet(tb, topmost{}, merge, "it mounts the topmost layer alone")
	})
	if len(reports) != 0 {
		t.Errorf("reported %q", reports)
	}
	if device == 0 {
		t.Error("the case was not run")
	}
}

// A case that ends early is cleaned up: its mounts are gone, the last first.
func TestAttemptCleansUp(t *testing.T) {
	a := &attempt{TB: t}
	var order []string
	a.do(func() {
		a.Cleanup(func() { order = append(order, "first") })
		a.Cleanup(func() {
			order = append(order, "second")
			a.Fatal("in", "cleanup")
		})
		a.Fatalf("ends %s", "here")
		order = append(order, "never")
	})
	if got := strings.Join(order, " "); got != "second first" {
		t.Errorf("ran %s", got)
	}
	if got := strings.Join(a.reports, "; "); got != "ends here; in cleanup" || !a.Failed() {
		t.Errorf("reported %q, failed %t", got, a.Failed())
	}
}
