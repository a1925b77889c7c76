package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests of a package that start processes pass with whatever signals, umask and limits they inherit, as below nohup:
// its TestMain calls surroundings.Settle or one of its kind, or the Main of a suite, which does.
func TestPackagesThatStartProcessesSettle(t *testing.T) {
	t.Parallel()
	starts := regexp.MustCompile(`"os/exec"|\bos\.StartProcess\(|\bForkExec\(`)
	settles := regexp.MustCompile(`\bSettle(AsRoot|WithBuilt)?\(\)\n|\b(containertest|unionfstest|suite)\.Main\(m\b`)
	starting, settled := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return skipOthers(path, entry, err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		folder := filepath.Dir(path)
		starting[folder] = starting[folder] || starts.Match(text)
		settled[folder] = settled[folder] || settles.Match(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range starting {
		if starting[folder] && !settled[folder] {
			t.Errorf("%s: the tests start processes, and no TestMain calls surroundings.Settle", folder)
		}
	}
	if len(settled) < 20 {
		t.Errorf("tests in %d folders: the search is wrong", len(settled))
	}
}

// skipOthers skips the folders of modules that do not import packages below tests, and those that are not source.
func skipOthers(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	switch filepath.ToSlash(path) {
	case "../../netplugins", "../../tests/kubernetes", "../../examples/template", "../../build/out", "../../bin":
		return fs.SkipDir
	}
	if strings.HasPrefix(entry.Name(), ".git") {
		return fs.SkipDir
	}
	return nil
}
