package house

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A product of the template goes on to build: testdata/names.txt has each exported name that the template uses, as it
// was at the last release, and a name that is another one now is in the changelog's newest section, as `package.Name`.
// A release writes the list anew.
func TestChangesOfTheTemplatesNamesAreInTheChangelog(t *testing.T) {
	t.Parallel()
	used := namesOfTemplate(t)
	listed := strings.Split(strings.TrimSpace(read(t, "testdata/names.txt")), "\n")
	_, newest, _ := strings.Cut(read(t, "../../CHANGELOG.md"), "\n## ")
	newest, _, _ = strings.Cut(newest, "\n## ")
	announced := func(line string) bool {
		name, _, _ := strings.Cut(line, "\t")
		return strings.Contains(newest, "`"+name+"`")
	}
	for _, line := range listed {
		if !slices.Contains(used, line) && !announced(line) {
			t.Errorf("the template used %q, which CHANGELOG.md does not name", line)
		}
	}
	for _, line := range used {
		if !slices.Contains(listed, line) && !announced(line) {
			t.Errorf("the template uses %q, which is not in testdata/names.txt", line)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// namesOfTemplate returns the exported names of this module that the template uses, sorted: "package.Name", a tab, and
// the declaration.
func namesOfTemplate(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/template/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of the template: %q, %v", files, err)
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	var imports []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
		for _, spec := range file.Imports {
			imports = append(imports, strings.Trim(spec.Path.Value, `"`))
		}
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", exportsOf(t, imports))}
	if _, err := config.Check("template", set, parsed, &info); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, object := range info.Uses {
		if from := object.Pkg(); from != nil && strings.HasPrefix(from.Path()+"/", module(t)+"/") {
			all = append(all, describe(object))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// describe returns the line of a name. A struct may get further fields: its line has none.
func describe(object types.Object) string {
	short := func(p *types.Package) string { return p.Name() }
	name := object.Pkg().Name() + "." + object.Name()
	if _, isStruct := object.Type().Underlying().(*types.Struct); isStruct && object.Parent() == object.Pkg().Scope() {
		return name + "\ttype " + name + " struct"
	}
	return name + "\t" + types.ObjectString(object, short)
}

// exportsOf returns where the compiler's description of each package is that these import.
func exportsOf(t *testing.T, imports []string) importer.Lookup {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-export", "-f", "{{.ImportPath}}\t{{.Export}}", "-tags", "seccomp,netgo,osusergo"}, imports...)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[name] = file
	}
	return func(name string) (io.ReadCloser, error) {
		if files[name] == "" {
			return nil, fmt.Errorf("package %s is not compiled", name)
		}
		return os.Open(files[name])
	}
}
