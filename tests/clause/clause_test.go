package clause

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder is a test that keeps what Covers does to it.
type recorder struct {
	testing.TB
	attributes []string
	failures   int
}

func (r *recorder) Helper()                {}
func (r *recorder) Attr(key, value string) { r.attributes = append(r.attributes, key+"="+value) }
func (r *recorder) Fatalf(string, ...any)  { r.failures++ }

func TestClausesBecomeAttributes(t *testing.T) {
	for _, tt := range []struct {
		ids      []string
		want     []string
		failures int
	}{
		{ids: nil},
		{ids: []string{""}},
		{ids: []string{"C-USR-01"}, want: []string{"clause=C-USR-01"}},
		{ids: []string{"C-USR-01 C-USR-02"}, want: []string{"clause=C-USR-01", "clause=C-USR-02"}},
		{ids: []string{"C-USR-01", "C-FS-10"}, want: []string{"clause=C-USR-01", "clause=C-FS-10"}},
		{ids: []string{"USR-01"}, failures: 1},
		{ids: []string{"C-USR-01 a sentence"}, failures: 1},
		{ids: []string{"C-USR-1"}, failures: 1},
	} {
		t.Run(fmt.Sprint(tt.ids), func(t *testing.T) {
			r := &recorder{TB: t}
			Covers(r, tt.ids...)
			if diff := cmp.Diff(tt.want, r.attributes); diff != "" || r.failures != tt.failures {
				t.Errorf("%d failures, %s", r.failures, diff)
			}
		})
	}
}
