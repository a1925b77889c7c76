package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A product, which cannot import internal packages, can call and implement all that the rooms export.
func TestExportedSignaturesNameNoInternalType(t *testing.T) {
	files := 0
	eachProductFile(t, func(name string, file *ast.File) {
		internal := map[string]bool{}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
			if local := path.Base(imported); strings.Contains(imported, "/internal/") {
				if spec.Name != nil {
					local = spec.Name.Name
				}
				internal[local] = true
			}
		}
		files++
		for _, signature := range exportedTypes(file) {
			ast.Inspect(signature, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
						t.Errorf("%s: an exported signature has %s.%s", name, x.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
	})
	if files < 100 {
		t.Errorf("%d files", files)
	}
}

// The examples are what other modules can be: they import nothing that is internal.
func TestExamplesImportNothingInternal(t *testing.T) {
	err := filepath.WalkDir("../../examples", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, "/internal/") {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// eachProductFile parses the files of the packages that other modules can import.
func eachProductFile(t *testing.T, do func(name string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch strings.TrimPrefix(name, "../../") {
			case ".git", "bin", "build/out", "dist", "internal", "tests", "examples", "tools", "netplugins":
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err == nil && file.Name.Name != "main" {
			do(name, file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// exportedTypes returns the types in a file that a user of the package sees: of exported functions, methods, fields,
// variables and constants.
func exportedTypes(file *ast.File) (seen []ast.Node) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || receiver(d).IsExported()) {
				seen = append(seen, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						seen = append(seen, exportedParts(s.Type)...)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && s.Type != nil {
						seen = append(seen, s.Type)
					}
				}
			}
		}
	}
	return seen
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) (name *ast.Ident) {
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok && name == nil {
			name = ident
		}
		return name == nil
	})
	return name
}

// exportedParts returns a type without a struct's fields that are not exported.
func exportedParts(t ast.Expr) []ast.Node {
	list, ok := t.(*ast.StructType)
	if !ok {
		return []ast.Node{t}
	}
	var seen []ast.Node
	for _, field := range list.Fields.List {
		if field.Names == nil || field.Names[0].IsExported() {
			seen = append(seen, field.Type)
		}
	}
	return seen
}
