package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The list LONG of the Makefile names tests: a rename must not take one back into make test unseen.
func TestLongTestsExist(t *testing.T) {
	t.Parallel()
	_, list, found := strings.Cut(readFile(t, "Makefile"), "\nLONG := \\\n")
	if !found {
		t.Fatal("the Makefile has no list LONG")
	}
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	all := endToEndTests(t)
	for name := range strings.FieldsSeq(list) {
		if !all[name] {
			t.Errorf("LONG of the Makefile names %s, which is not an end-to-end test", name)
		}
	}
}

// endToEndTests returns the names of the tests below tests and launcher/tests.
func endToEndTests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, root := range []string{"../../tests", "../../launcher/tests"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range function.FindAllSubmatch(text, -1) {
				all[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
