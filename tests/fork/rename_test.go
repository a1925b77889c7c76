package fork

import (
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
	"testing"

	"kurma.io/stager/names"
)

// renamed are the names that TestRenameIsOneEdit changes, with what it changes them to.
func renamed() map[string][2]string {
	return map[string][2]string{
		"Program":                 {names.Program, "lodger"},
		"Image":                   {names.Image, "example.com/lodger/image"},
		"RunDir":                  {names.RunDir, "/run/of-lodger"},
		"LogDir":                  {names.LogDir, "/var/log/of-lodger/apps"},
		"ControlSocket":           {strings.TrimPrefix(names.ControlSocket, names.RunDir), "/lodger.sock"},
		"StdinAnnotation":         {names.StdinAnnotation, "example.com/lodger/stdin"},
		"HideProcessesAnnotation": {names.HideProcessesAnnotation, "example.com/lodger/hide-processes"},
		"TTYAnnotation":           {names.TTYAnnotation, "example.com/lodger/tty"},
		"TTYSizeAnnotation":       {names.TTYSizeAnnotation, "example.com/lodger/tty-size"},
		"LogDirAnnotation":        {names.LogDirAnnotation, "example.com/lodger/logs"},
		"EventsAnnotation":        {names.EventsAnnotation, "example.com/lodger/events"},
	}
}

// rename edits the one file of names, and has the C files' copy of names made of it.
func (f tree) rename() {
	f.t.Helper()
	text := f.read("names/names.go")
	for name, change := range renamed() {
		line := regexp.MustCompile(`(?m)^(\t` + name + ` +=.*)` + regexp.QuoteMeta(strconv.Quote(change[0])))
		if n := len(line.FindAllString(text, -1)); n != 1 {
			f.t.Fatalf("names.go has %d lines of %s with %q", n, name, change[0])
		}
		text = line.ReplaceAllString(text, "${1}"+strconv.Quote(change[1]))
	}
	if err := os.WriteFile(f.path("names/names.go"), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.run(nil, "go", "generate", "./names/...")
}

// The test renames a copy of the tree by editing one file, and builds and tests
// it: the parts that find each other by a name, and pods of the built programs.
func TestRenameIsOneEdit(t *testing.T) {
	f := copyTree(t)
	f.rename()
	f.run(nil, "make", "build", "aci")

	found, err := filepath.Glob(f.path("build/out/lodger-*.aci")) // beside the plugins' images
	if err != nil || len(found) != 1 {
		t.Fatalf("the image is %q, %v", found, err)
	}
	for _, program := range []string{"bin/stager", "bin/launcher"} {
		text := f.read(program)
		for name, change := range renamed() {
			if name != "Program" && name != "ControlSocket" && strings.Contains(text, change[0]) {
				t.Errorf("%s has the old %s, %q", program, name, change[0])
			}
		}
	}

	test := []string{"go", "test", "-buildvcs=false", "-count=1", "-timeout=4m", "-tags", "seccomp netgo osusergo", "-run"}
	f.run(nil, append(test, ".", "./names/...", "./build/...", "./plan")...)
	f.run(nil, append(test, "^Test(TheStandardCallInsAreThoseOfTheImage|PodIsReadyWhenTheAppSaysSo)$", "./program", "./stager")...)
	f.run(nil, append(test, "^Test(StagerGetsWhatTheSpecificationSays|DetachedPodThatEndsIsKeptForGC|AStagerWithoutALogFolderRuns)$", "./launcher")...)
	f.run(
		[]string{"STAGER_BIN=" + f.path("bin"), "STAGER_ACI=" + found[0], "STAGER_IMAGES=" + images(t)},
		append(test, "^Test(SpecificationExampleRuns|ReadyPipeEndsWhenThePodIsUp|StdioVariablesNameDescriptors|"+
			"StatusWorksAsTheDaemonCallsIt|LogsWorkAsTheDaemonCallsThem|RunWorksAsTheDaemonCallsIt|AttachTypesAndShows|"+
			"AttachRestoresTheCallersTerminal|ASecondStagerIsRefused|LogsOutliveTheirPod|BadManifestsAreRefused)$", "./tests")...,
	)
}

// TestNamesAreWrittenOnce looks for the names in all other files: a name that is written
// there does not follow a rename.
func TestNamesAreWrittenOnce(t *testing.T) {
	var found []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "names", "bin", "build/out"}, name):
			return fs.SkipDir
		case name == "internal/c/names.h": // generated from them
		case d.Type().IsRegular() && (slices.Contains([]string{".go", ".c", ".h", ".sh", ".json"}, filepath.Ext(name)) || name == "Makefile"):
			text, err := code(path)
			for _, written := range onlyInNames() {
				if strings.Contains(text, written) {
					found = append(found, name+": "+written)
				}
			}
			return err
		}
		return nil
	})
	if err != nil || len(found) > 0 {
		t.Errorf("%v, names outside of names/names.go:\n%s", err, strings.Join(found, "\n"))
	}
}

// onlyInNames are the names, and the paths without their slash: they may be joined to
// another path.
func onlyInNames() []string {
	all := []string{names.Image, names.StdinAnnotation, names.TTYAnnotation, names.HideProcessesAnnotation, names.LogDirAnnotation, names.EventsAnnotation}
	for _, path := range []string{names.RunDir, names.LogDir, names.NotifySocket} {
		all = append(all, strings.TrimPrefix(path, "/"))
	}
	return all
}

// code is what of a file a machine reads: of Go, the strings.
func code(path string) (string, error) {
	if filepath.Ext(path) != ".go" {
		data, err := os.ReadFile(path)
		return regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(data), ""), err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text.WriteString(literal.Value + "\n")
		}
		return true
	})
	return text.String(), nil
}
