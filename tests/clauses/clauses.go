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
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// clause is one line of clauses.txt.
type clause struct {
	id, sentence string
	unmet        string // what of it cannot be met here, and why
	tried        string // on which machines its tests show it
}

func readClauses(path string) ([]clause, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []clause
	for line := range strings.Lines(string(data)) {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case first == "" || first == "#":
		case first == "-" && len(all) > 0:
			all[len(all)-1].unmet = rest
		case first == "@" && len(all) > 0:
			all[len(all)-1].tried = rest
		default:
			all = append(all, clause{id: first, sentence: rest})
		}
	}
	return all, nil
}

// findTests gives the tests of all clauses, by ID, sorted.
func findTests(root string) (map[string][]string, error) {
	tests := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		// The conformance suite of file systems is no _test.go file, for others to use.
		isTest := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "unionfstest/suite.go")
		if err != nil || d.IsDir() || !isTest {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
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

// addTest adds a test to the clauses that its name, or a subtest's, carries.
func addTest(tests map[string][]string, dir string, f *ast.FuncDecl) {
	inName := regexp.MustCompile(`^TestClause_((C_[A-Z]+_\d\d_)+)`)
	inText := regexp.MustCompile(`^(C-[A-Z]+-\d\d)[ ,:]*`)
	name := dir + " " + f.Name.Name
	if m := inName.FindStringSubmatch(f.Name.Name); m != nil {
		for _, id := range regexp.MustCompile(`C_[A-Z]+_\d\d`).FindAllString(m[1], -1) {
			id = strings.ReplaceAll(id, "_", "-")
			tests[id] = append(tests[id], name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true
		}
		for m := inText.FindStringSubmatch(text); m != nil; m = inText.FindStringSubmatch(text) {
			tests[m[1]] = append(tests[m[1]], name)
			text = text[len(m[0]):]
		}
		return true
	})
}

// document is tests/CLAUSES.md. A clause without a test or a reason, and a test
// of a clause that there is not, are errors.
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
	b.WriteString("# Clauses of the App Container specification and their tests\n\nMade by `make clauses` from the names of the tests.\n\n")
	b.WriteString("| clause | what must hold | tests |\n| --- | --- | --- |\n")
	var errs []error
	for _, c := range clauses {
		lines := slices.Clone(tests[c.id])
		if c.unmet != "" {
			lines = append(lines, "not met: "+c.unmet)
		}
		if len(lines) == 0 {
			errs = append(errs, fmt.Errorf("no test carries %s, and no sentence says why it cannot be met", c.id))
		}
		if c.tried != "" {
			lines = append(lines, "tried: "+c.tried)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.id, c.sentence, strings.Join(lines, "<br>"))
		delete(tests, c.id)
	}
	for id, names := range tests {
		errs = append(errs, fmt.Errorf("%s carries %s, which is no clause", names, id))
	}
	return b.String(), errors.Join(errs...)
}
