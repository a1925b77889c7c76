package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	longestFile = 350 // lines: a file is one idea
	longestLine = 120 // columns, a tab counted as one
)

// The files and lines of product code are short, in every module.
func TestProductCodeIsShort(t *testing.T) {
	t.Parallel()
	other := regexp.MustCompile(`^(examples|build/out|dist|bin|\.)|(^|/)tests(/|$)|test(/|\.go$)`)
	code := regexp.MustCompile(`\.(go|c|h)$`)
	checked := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case name != "." && other.MatchString(name) && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir() || other.MatchString(name) || !code.MatchString(name):
			return nil
		}
		checked++
		return checkLength(t, path, name)
	})
	if err != nil || checked < 200 {
		t.Errorf("%d files were checked: %v", checked, err)
	}
}

func checkLength(t *testing.T, path, name string) error {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) > longestFile {
		t.Errorf("%s has %d lines, want at most %d", name, len(lines), longestFile)
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > longestLine {
			t.Errorf("%s:%d has %d columns, want at most %d", name, i+1, n, longestLine)
		}
	}
	return nil
}
