// Package house tests that the house is as ARCHITECTURE.md draws it.
package house

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module returns the path of this module, which a fork may have changed.
func module(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	path, ok := strings.CutPrefix(line, "module ")
	if !ok {
		t.Fatalf("go.mod begins with %q", line)
	}
	return path
}

// goPackage is a package in the output of go list.
type goPackage struct {
	ImportPath string
	Standard   bool
	CgoFiles   []string
	Imports    []string
	Module     *struct{ Path string }
}

// list runs go list with arguments in the top folder.
func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-tags", "seccomp,netgo,osusergo", "-json=ImportPath,Standard,CgoFiles,Imports,Module"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// What is decided, and what a fork takes without our runtime, needs neither cgo nor
// libcontainer, with all that it depends on.
func TestRoomsNeedNoCgo(t *testing.T) {
	for _, room := range []string{
		"plan", "spec", "manifest", "unionfs", "unionfs/unionfstest", "crilog", "supervisor", "callins", "boot", "program", "boot/rootfs",
		"boot/activation", "boot/journal", "boot/netlimit", "boot/metadata", "pid1/goinit", "helper", "names", "container/cgroup", "container/identity",
		"container/machine", "container/containertest", "supervisor/supervisortest",
	} {
		for _, p := range list(t, "-deps", "./"+room) {
			if len(p.CgoFiles) > 0 {
				t.Errorf("%s needs cgo, for %s", room, p.ImportPath)
			}
			if strings.HasPrefix(p.ImportPath, "github.com/opencontainers/runc/") {
				t.Errorf("%s needs %s", room, p.ImportPath)
			}
		}
	}
}

// imports are a room's: other rooms, and other modules.
type imports struct{ Rooms, Modules []string }

// The table of rooms in ARCHITECTURE.md says what each room imports.
func TestRoomsImportWhatTheTableSays(t *testing.T) {
	table := readTable(t)
	if diff := cmp.Diff(table, readPackages(t, table)); diff != "" {
		t.Errorf("the table of ARCHITECTURE.md (-) and the code (+) differ:\n%s", diff)
	}
}

// What the launcher shares with the stager by import is the list that ARCHITECTURE.md has.
func TestTheLauncherSharesWhatTheListSays(t *testing.T) {
	if left(t, "launcher") {
		return
	}
	_, list, found := strings.Cut(readFile(t, "ARCHITECTURE.md"), "\n| shared |")
	list, _, ends := strings.Cut(list, "\n\n")
	if !found || !ends {
		t.Fatal("ARCHITECTURE.md has no list of what is shared")
	}
	var listed, imported []string
	for line := range strings.Lines(list) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			listed = append(listed, quoted(cells[1])...)
		}
	}
	for room, i := range readTable(t) {
		if room == "launcher" || strings.HasPrefix(room, "launcher/") {
			imported = append(imported, i.Rooms...)
		}
	}
	imported = slices.DeleteFunc(unique(imported), func(room string) bool { return strings.HasPrefix(room, "launcher/") })
	if diff := cmp.Diff(unique(listed), imported); diff != "" {
		t.Errorf("the list (-) and the rows (+) differ:\n%s", diff)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// quoted returns what stands between backquotes, sorted.
func quoted(text string) []string {
	names := []string{}
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			names = append(names, part)
		}
	}
	slices.Sort(names)
	return names
}

// left tells if a path is in the house of the launcher or of the server for Kubernetes, and a fork has deleted this house's
// folder.
func left(t *testing.T, path string) bool {
	t.Helper()
	house, _, _ := strings.Cut(path, "/")
	if house != "launcher" && house != "cri" {
		return false
	}
	_, err := os.Stat("../../" + house)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err != nil
}

// readTable reads the rows of rooms, by their folders. tests and examples are not rooms.
func readTable(t *testing.T) map[string]imports {
	t.Helper()
	rooms := map[string]imports{}
	for line := range strings.Lines(readFile(t, "ARCHITECTURE.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		folder := strings.TrimSuffix(quoted(cells[1])[0], "/")
		if folder != "tests" && folder != "examples" && !left(t, folder) {
			rooms[folder] = imports{quoted(cells[3]), quoted(cells[4])}
		}
	}
	if len(rooms) < 20 {
		t.Fatalf("the table of ARCHITECTURE.md has %d rooms", len(rooms))
	}
	return rooms
}

// roomOf returns the room that a package is in, "" for none. Suites and commands are in none.
func roomOf(t *testing.T, path string, rooms map[string]imports) string {
	folder, ok := strings.CutPrefix(path, module(t)+"/")
	if !ok || slices.Contains([]string{"unionfs/unionfstest", "container/containertest", "supervisor/supervisortest", "build/aci", "names/print"}, folder) {
		return ""
	}
	room := ""
	for name := range rooms {
		if (folder == name || strings.HasPrefix(folder, name+"/")) && len(name) > len(room) {
			room = name
		}
	}
	return room
}

// readPackages finds out what the rooms' packages import, their tests left out.
func readPackages(t *testing.T, rooms map[string]imports) map[string]imports {
	t.Helper()
	origins := map[string]string{}
	for _, p := range list(t, "-deps", "./...") {
		if p.Module != nil {
			origins[p.ImportPath] = p.Module.Path
		}
	}
	found := map[string]imports{}
	for name := range rooms {
		found[name] = imports{[]string{}, []string{}}
	}
	for _, p := range list(t, "./...") {
		room := roomOf(t, p.ImportPath, rooms)
		if room == "" {
			if folder := strings.TrimPrefix(p.ImportPath, module(t)+"/"); !strings.HasPrefix(folder, "tests") && !strings.Contains(folder, "/") {
				t.Errorf("the table of ARCHITECTURE.md has no row for %s", folder)
			}
			continue
		}
		all := found[room]
		for _, path := range p.Imports {
			switch other := origins[path]; {
			case other == module(t):
				if r := roomOf(t, path, rooms); r != room {
					all.Rooms = append(all.Rooms, r)
				}
			case other != "":
				all.Modules = append(all.Modules, other)
			}
		}
		found[room] = imports{unique(all.Rooms), unique(all.Modules)}
	}
	return found
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// A C file includes headers of its own room, and those that rooms share.
func TestCFilesIncludeTheirRoomsHeaders(t *testing.T) {
	files := 0
	for _, pattern := range []string{"*/*.[ch]", "*/*/*.[ch]"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			path := strings.TrimPrefix(file, "../../")
			if strings.HasPrefix(path, "build/") {
				continue
			}
			files++
			for line := range strings.Lines(readFile(t, path)) {
				header, ok := strings.CutPrefix(strings.TrimSpace(line), `#include "`)
				if header = strings.TrimSuffix(header, `"`); !ok {
					continue
				}
				_, own := os.Stat(filepath.Join(strings.TrimSuffix(filepath.Dir(file), "/testdata"), header))
				_, shared := os.Stat("../../internal/c/" + header)
				if strings.Contains(header, "/") || own != nil && shared != nil {
					t.Errorf("%s includes %s", path, header)
				}
			}
		}
	}
	if files < 10 {
		t.Errorf("%d C files", files)
	}
}
