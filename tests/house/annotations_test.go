package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// docs/pods.md describes each annotation that the code names once.
func TestAnnotationsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n### Annotations\n")
	if !found {
		t.Fatal("docs/pods.md has no heading Annotations")
	}
	table, _, _ = strings.Cut(table, "\n#")
	declared := append(annotationsIn(t, "../../names"), annotationsIn(t, "../../plan")...)
	for _, name := range declared {
		if n := strings.Count(table, "\n| `"+name+"` | "); n != 1 {
			t.Errorf("docs/pods.md has %d rows for %s", n, name)
		}
	}
	if rows := strings.Count(table, "\n| `"); rows != len(declared) {
		t.Errorf("docs/pods.md has %d rows for %d annotations", rows, len(declared))
	}
}

// annotationsIn returns the values of a package's constants that are called …Annotation.
func annotationsIn(t *testing.T, folder string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			constant, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasSuffix(constant.Names[0].Name, "Annotation") || len(constant.Values) != 1 {
				return true
			}
			if literal, ok := constant.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return true
		})
	}
	return values
}
