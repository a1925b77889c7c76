package conformance

import (
	"strings"
	"testing"
)

// passing and failing are the cases of a suite.
func passing() Case { return Case{Name: "hard links", Run: func(testing.TB) {}} }

func failing() Case {
	return Case{Name: "directories merge", Run: func(t testing.TB) { t.Errorf("%d layers", 1) }}
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

func TestWrongDeclarationsAreReported(t *testing.T) {
	tests := []struct {
		name  string
		unmet Unmet
		says  string // "" for no report
	}{
		{"none", nil, ""},
		{"a case", Unmet{"hard links": "it copies each name"}, ""},
		{"unknown name", Unmet{"hard link": "it copies each name"}, `"hard link", which is not a case`},
		{"empty reason", Unmet{"hard links": " "}, `"hard links" without a reason`},
		{"a case of the core", Unmet{"unmount": "it never mounts"}, `"unmount", without which no pod runs`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(tb testing.TB) {
				checkDeclared(tb, "topmost", []Case{passing(), failing(), {Name: "unmount", Core: true}}, tt.unmet)
			}
			reports := strings.Join(reportsOf(t, check), "\n")
			if tt.says == "" && reports != "" || !strings.Contains(reports, tt.says) {
				t.Errorf("reported %q, want %q", reports, tt.says)
			}
		})
	}
}

func TestDeclaredCaseThatPassesFails(t *testing.T) {
	reports := reportsOf(t, func(tb testing.TB) { runUnmet(tb, "topmost", passing(), "it copies each name") })
	want := `topmost passes "hard links", which it declares not to meet: it copies each name`
	if len(reports) != 1 || reports[0] != want {
		t.Errorf("reported %q, want %q", reports, want)
	}
}

func TestDeclaredCaseThatFailsPasses(t *testing.T) {
	ran := false
	c := failing()
	run := c.Run
	c.Run = func(tb testing.TB) { ran = true; run(tb) }
	if reports := reportsOf(t, func(tb testing.TB) { runUnmet(tb, "topmost", c, "it mounts the topmost layer alone") }); len(reports) != 0 {
		t.Errorf("reported %q", reports)
	}
	if !ran {
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
