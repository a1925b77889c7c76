// Command figures prints the size of a tree of Go and C: lines of product code by folder, the lengths of functions,
// files and lines, and the modules that each go.mod requires. Tests, their suites, the benchmark and the examples are
// counted apart.
//
//	go run -C tools ./figures [TREE]
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The aims: most functions are shorter than typical, and none is longer than longest, all in lines.
const (
	typicalFunction = 25
	longestFunction = 60
	longestFile     = 350
	longestLine     = 120 // columns; a tab is one
)

// figures are a tree's figures.
type figures struct {
	product, tests map[string]int   // lines, by folder
	functions      map[string][]int // lengths of the functions of product code, by module
	long           []string         // what is longer than an aim
	modules        map[string]int   // requirements, by go.mod
}

func main() {
	tree := ".."
	if len(os.Args) > 1 {
		tree = os.Args[1]
	}
	f := figures{map[string]int{}, map[string]int{}, map[string][]int{}, nil, map[string]int{}}
	if err := f.walk(tree); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	f.print()
}

// walk counts the files of a tree.
func (f *figures) walk(tree string) error {
	return filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(tree, path)
		if entry.IsDir() && isMade(name) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !slices.Contains([]string{".go", ".c", ".h", ".mod"}, filepath.Ext(name)) {
			return nil
		}
		return f.add(path, name)
	})
}

// add counts a file.
func (f *figures) add(path, name string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if filepath.Base(name) == "go.mod" {
		f.modules[name] = requirements(text)
		return nil
	}
	if isTest(name) {
		f.tests[folder(name)] += bytes.Count(text, []byte("\n"))
		return nil
	}
	f.addLines(name, text)
	if filepath.Ext(name) == ".go" {
		return f.addFunctions(name, text)
	}
	f.addCFunctions(name, string(text))
	return nil
}

func (f *figures) addLines(name string, text []byte) {
	lines := bytes.Count(text, []byte("\n"))
	f.product[folder(name)] += lines
	if lines > longestFile {
		f.long = append(f.long, fmt.Sprintf("file of %d lines: %s", lines, name))
	}
	for i, line := range strings.Split(string(text), "\n") {
		if n := len([]rune(line)); n > longestLine {
			f.long = append(f.long, fmt.Sprintf("line of %d columns: %s:%d", n, name, i+1))
		}
	}
}

func (f *figures) addFunctions(name string, text []byte) error {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, declaration := range parsed.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		n := files.Position(function.End()).Line - files.Position(function.Pos()).Line + 1
		f.addFunction(name, function.Name.Name, n)
	}
	return nil
}

// cFunction is the beginning of a function's definition, up to its name: the style of the C files has the function's
// body between a brace at the end of a line and one at the beginning of another.
var cFunction = regexp.MustCompile(`^[a-z][\w \t*]*?(\w+)\(`)

func (f *figures) addCFunctions(name, text string) {
	function, begin := "", 0
	for i, line := range strings.Split(text, "\n") {
		start := cFunction.FindStringSubmatch(line)
		switch {
		case start != nil && strings.HasSuffix(line, "}"):
			f.addFunction(name, start[1], 1)
		case start != nil:
			function, begin = start[1], i
		case strings.HasSuffix(line, ";") && !strings.HasPrefix(line, "\t"):
			function = "" // a declaration
		case line == "}" && function != "":
			f.addFunction(name, function, i-begin+1)
			function = ""
		}
	}
}

func (f *figures) addFunction(file, function string, lines int) {
	module := moduleOf(file)
	f.functions[module] = append(f.functions[module], lines)
	if lines > longestFunction {
		f.long = append(f.long, fmt.Sprintf("function of %d lines: %s %s", lines, file, function))
	}
}

// moduleOf is the module of a file of product code: a folder at the top, or the stager's.
func moduleOf(name string) string {
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains([]string{"launcher", "cri", "netplugins", "tools"}, first) {
		return first
	}
	return "stager"
}

// isMade reports whether a folder is made by a build, or holds data.
func isMade(name string) bool {
	base := filepath.Base(name)
	return slices.Contains([]string{"bin", "dist", "build/out"}, name) || base == "testdata" ||
		name != "." && strings.HasPrefix(base, ".")
}

// isTest reports whether a file is a test, part of a suite or the benchmark, or an example.
func isTest(name string) bool {
	parts := strings.Split(filepath.Dir(name), "/")
	return strings.HasSuffix(name, "_test.go") || parts[0] == "examples" ||
		slices.ContainsFunc(parts, func(part string) bool {
			return strings.HasSuffix(part, "test") || part == "tests" || part == "testdriver"
		})
}

// folder is where a file counts: the first folder of its path, with the second below the launcher.
func folder(name string) string {
	parts := strings.Split(filepath.Dir(name), "/")
	if parts[0] == "launcher" || parts[0] == "cri" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// requirements counts the modules that a go.mod requires directly.
func requirements(text []byte) int {
	n := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		named := len(fields) >= 2 && strings.HasPrefix(fields[1], "v")
		if named && !strings.Contains(line, "// indirect") && !strings.Contains(line, "=>") {
			n++
		}
	}
	return n
}

func (f *figures) print() {
	printCounts := func(title string, counts map[string]int) {
		fmt.Println(title)
		sum := 0
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Printf("  %6d  %s\n", counts[name], name)
			sum += counts[name]
		}
		fmt.Printf("  %6d  in all\n", sum)
	}
	printCounts("lines of product code", f.product)
	printCounts("lines of tests, suites, benchmark and examples", f.tests)
	printCounts("modules that are required directly", f.modules)
	fmt.Println("functions of product code in Go and C")
	var all []int
	for _, module := range slices.Sorted(maps.Keys(f.functions)) {
		printLengths(module, f.functions[module])
		all = append(all, f.functions[module]...)
	}
	printLengths("in all", all)
	fmt.Println(strings.Join(append(f.long, fmt.Sprintf("%d longer than an aim", len(f.long))), "\n"))
}

func printLengths(of string, lengths []int) {
	slices.Sort(lengths)
	short, _ := slices.BinarySearch(lengths, typicalFunction)
	count := len(lengths)
	fmt.Printf("  %6d  %s: median %d lines, %.1f %% below %d, longest %d\n",
		count, of, lengths[count/2], 100*float64(short)/float64(count), typicalFunction, lengths[count-1])
}
