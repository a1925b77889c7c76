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
	if left(t, "launcher") {
		return // with its tests
	}
	_, list, found := strings.Cut(readFile(t, "Makefile"), "\nLONG := \\\n")
	if !found {
		t.Fatal("the Makefile has no list LONG")
	}
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	all := endToEndTests(t)
	for name := range strings.FieldsSeq(list) {
		if all[name] == "" {
			t.Errorf("LONG of the Makefile names %s, which is not an end-to-end test", name)
		}
	}
}

// make test-networks selects its tests by parts of their names: a test of the networks must not be left out unseen.
func TestEveryTestOfNetworksIsSelected(t *testing.T) {
	t.Parallel()
	if left(t, "launcher") {
		return // with its tests
	}
	_, target, _ := strings.Cut(readFile(t, "Makefile"), "\ntest-networks:")
	found := regexp.MustCompile(`-run '([^']+)'`).FindStringSubmatch(target)
	if found == nil {
		t.Fatal("the Makefile's target test-networks selects no tests")
	}
	selected := regexp.MustCompile(found[1])
	for name, file := range endToEndTests(t) {
		if strings.HasPrefix(filepath.Base(file), "networks_") && !selected.MatchString(name) {
			t.Errorf("make test-networks leaves out %s of %s", name, file)
		}
	}
}

// endToEndTests returns the tests below tests and launcher/tests: their files by their names.
func endToEndTests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, root := range []string{"../../tests", "../../launcher/tests"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range function.FindAllSubmatch(text, -1) {
				all[string(match[1])] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
