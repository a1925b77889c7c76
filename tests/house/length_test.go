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
	checked := eachFile(t, other, regexp.MustCompile(`\.(go|c|h)$`), checkLength)
	if checked < 200 {
		t.Errorf("%d files were checked", checked)
	}
}

// Paragraphs and lists of the documents have short lines, so that a change shows what it changes. A table's row is a
// line, and so is a word without a space.
func TestDocumentsHaveShortLines(t *testing.T) {
	t.Parallel()
	checked := eachFile(t, regexp.MustCompile(`^(build/out|dist|bin|\.)`), regexp.MustCompile(`\.md$`), checkDocument)
	if checked < 30 {
		t.Errorf("%d documents were checked", checked)
	}
}

// eachFile calls check with each file of the tree that matches what, outside of other, and returns their number.
func eachFile(t *testing.T, other, what *regexp.Regexp, check func(t *testing.T, name string, lines []string)) (checked int) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case name != "." && other.MatchString(name) && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir() || other.MatchString(name) || !what.MatchString(name):
			return nil
		}
		checked++
		text, err := os.ReadFile(path)
		if err == nil {
			check(t, name, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return checked
}

func checkLength(t *testing.T, name string, lines []string) {
	t.Helper()
	if len(lines) > longestFile {
		t.Errorf("%s has %d lines, want at most %d", name, len(lines), longestFile)
	}
	for i, line := range lines {
		checkLine(t, name, i, line)
	}
}

func checkLine(t *testing.T, name string, i int, line string) {
	t.Helper()
	if n := utf8.RuneCountInString(line); n > longestLine {
		t.Errorf("%s:%d has %d columns, want at most %d", name, i+1, n, longestLine)
	}
}

func checkDocument(t *testing.T, name string, lines []string) {
	t.Helper()
	unbroken := regexp.MustCompile("`[^`]*`|\\[[^]]*\\]\\([^)]*\\)") // code and links
	isCode := false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```"):
			isCode = !isCode
		case isCode || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#"):
		case strings.Contains(unbroken.ReplaceAllString(text, ""), " "):
			checkLine(t, name, i, line)
		}
	}
}
