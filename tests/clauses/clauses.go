package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/tests/clause"
)

// entry is one line of clauses.txt.
type entry struct {
	id, sentence string
	unmet        string // the part that cannot be met here, and why
	tried        string // the machines on which its tests show it
}

func readClauses(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []entry
	for line := range strings.Lines(string(data)) {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case first == "" || first == "#":
		case first == "-" && len(all) > 0:
			all[len(all)-1].unmet = rest
		case first == "@" && len(all) > 0:
			all[len(all)-1].tried = rest
		default:
			all = append(all, entry{id: first, sentence: rest})
		}
	}
	return all, nil
}

// findTests returns the tests of all clauses, by ID, sorted. It reads every file that imports package
// clause.
func findTests(root string) (map[string][]string, error) {
	tests := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil || !declares(file) {
			return err
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				addTest(tests, dir, f)
			}
		}
		return nil
	})
	for id := range tests {
		slices.Sort(tests[id])
		tests[id] = slices.Compact(tests[id])
	}
	return tests, err
}

// declares reports whether a file imports package clause.
func declares(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		path, err := strconv.Unquote(i.Path.Value)
		return err == nil && strings.HasSuffix(path, "/tests/clause")
	})
}

// addTest adds a test to the clauses that it, or a table in it, names.
func addTest(tests map[string][]string, dir string, f *ast.FuncDecl) {
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil {
			for _, id := range clause.IDs(text) {
				tests[id] = append(tests[id], dir+" "+f.Name.Name)
			}
		}
		return true
	})
}

// document returns the text of tests/CLAUSES.md. It is an error if a clause has neither a test nor a
// reason, or if a test declares a clause that does not exist.
func document(root string) (string, error) {
	clauses, err := readClauses(filepath.Join(root, "tests/clauses/clauses.txt"))
	if err != nil {
		return "", err
	}
	tests, err := findTests(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Clauses of the App Container specification and their tests\n\n`make clauses` generates this file from the declarations of the tests, see `tests/clause`.\n\n")
	b.WriteString("| clause | what must hold | tests |\n| --- | --- | --- |\n")
	var errs []error
	for _, c := range clauses {
		lines := slices.Clone(tests[c.id])
		if c.unmet != "" {
			lines = append(lines, "not met: "+c.unmet)
		}
		if len(lines) == 0 {
			errs = append(errs, fmt.Errorf("no test declares %s, and no sentence says why it cannot be met", c.id))
		}
		if c.tried != "" {
			lines = append(lines, "tried: "+c.tried)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.id, c.sentence, strings.Join(lines, "<br>"))
		delete(tests, c.id)
	}
	for id, names := range tests {
		errs = append(errs, fmt.Errorf("%s declares %s, which is not a clause", names, id))
	}
	choices, err := choicesTable(filepath.Join(root, "tests/clauses/choices.txt"), clauses)
	b.WriteString(choices)
	return b.String(), errors.Join(append(errs, err)...)
}

// choicesTable returns the table of the questions that the text, rkt and Kurma answer differently. A
// line with a wrong number of fields is an error, and so are a gap in the IDs and a clause that does not exist.
func choicesTable(path string, clauses []entry) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("\n# Where the text, rkt and Kurma differ\n\n\"?\" means not known. The clauses are those above whose tests show the choice.\n\n")
	b.WriteString("| | question | the text | rkt | Kurma | here | clauses |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	var errs []error
	count := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		count++
		fields := strings.Split(line, " | ")
		if len(fields) != 7 {
			errs = append(errs, fmt.Errorf("%s: %q has %d fields, want 7", path, line, len(fields)))
			continue
		}
		if want := fmt.Sprintf("D-%02d", count); fields[0] != want {
			errs = append(errs, fmt.Errorf("%s: question %s, want %s", path, fields[0], want))
		}
		for _, id := range strings.Fields(fields[6]) {
			if !slices.ContainsFunc(clauses, func(c entry) bool { return c.id == id }) {
				errs = append(errs, fmt.Errorf("%s: %s names clause %s, which does not exist", path, fields[0], id))
			}
		}
		fmt.Fprintf(&b, "| %s |\n", line)
	}
	return b.String(), errors.Join(errs...)
}
