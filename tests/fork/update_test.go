package fork

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A product that was made when the template was new takes today's version of the module by one line of its go.mod, and
// passes its tests, which run a pod of its image.
func TestAnEarlierProductTakesTodaysVersion(t *testing.T) {
	history := clone(t)
	added := strings.Fields(history.run(nil, "git", "log", "--diff-filter=A", "--format=%H", "--", "examples/template/main.go"))
	if len(added) == 0 || added[len(added)-1] == history.commit("HEAD") {
		t.Fatal("the history does not have an earlier template: git fetch --unshallow")
	}
	history.run(nil, "git", "switch", "--quiet", "--detach", added[len(added)-1])
	env := append(proxied(t, publish(t, history, copyTree(t))), "CGO_ENABLED=1", "XDG_CONFIG_HOME="+t.TempDir())
	history.run(env, "sh", "-c", history.commands(template, fork))

	product := tree{t, filepath.Join(history.dir, "../product")}
	mod := product.read("go.mod")
	product.run(env, "go", "get", release.Path+"@v0.2.0")
	product.run(env, "go", "mod", "tidy")
	if got, want := direct(product.read("go.mod")), direct(strings.Replace(mod, release.Path+" v0.1.0", release.Path+" v0.2.0", 1)); got != want {
		t.Errorf("the product's go.mod has\n%s\nwant\n%s", got, want)
	}
	if out := product.run(env, ".ci/run"); !strings.Contains(out, "ok  \texample.com/product\t") {
		t.Errorf("the tests print\n%s", out)
	}
}

// direct returns a go.mod without the modules of other modules.
func direct(mod string) string {
	return regexp.MustCompile(`(?m)^.*// indirect\n`).ReplaceAllString(mod, "")
}

// A fork that was made some commits ago, with a change in rooms beside the document's, is updated by the document: only
// files that the fork has changed conflict, and few of them.
func TestAnEarlierForkIsUpdated(t *testing.T) {
	f := clone(t)
	behind := strconv.Itoa(min(50, f.commits()-1))
	if behind == "0" {
		t.Fatal("the history has one commit: git fetch --unshallow")
	}
	today := tree{t, "../.."}
	begin, update, _ := strings.Cut(today.commands(updating, ""), "git fetch origin\n")
	tree{t, filepath.Dir(f.dir)}.write("rename.sh", today.commands(naming, changing))
	f.run(nil, "git", "update-ref", "refs/remotes/origin/main", "HEAD")
	f.run(nil, "git", "switch", "--quiet", "--detach", "HEAD~"+behind)
	f.run(nil, "sh", "-c", begin)
	f.run(nil, "sh", "-c", f.commands(changing, signing))
	f.changeRooms()
	f.run(nil, "git", "add", "--all")
	f.run(nil, "git", "commit", "--quiet", "--message", "our changes")
	ours := f.lines("git", "diff", "--name-only", "vendor", "annex")

	f.run(nil, "sh", "-c", strings.Replace("set -eux\n"+update, "git merge vendor\n", "git merge vendor || true\n", 1))
	conflicts := f.lines("git", "diff", "--name-only", "--diff-filter=U")
	t.Logf("an update by %s commits of a fork with %d files of its own: %d conflicts: %q", behind, len(ours), len(conflicts), conflicts)
	for _, name := range conflicts {
		if !slices.Contains(ours, name) {
			t.Errorf("%s conflicts, which the fork did not change", name)
		}
	}
	if len(conflicts) > maxConflicts {
		t.Errorf("%d files conflict, more than %d", len(conflicts), maxConflicts)
	}
	if f.commit("vendor^2") != f.commit("origin/main") {
		t.Error("the fork lacks the stager's history")
	}
	for _, room := range rooms() {
		if !slices.Contains(conflicts, room.file) && !strings.Contains(f.read(room.file), room.change) {
			t.Errorf("%s has lost the fork's change", room.file)
		}
	}
	if len(conflicts) == 0 { // otherwise a person merges first
		f.run([]string{"CGO_ENABLED=1"}, "go", "build", "-buildvcs=false", "-tags", "seccomp netgo osusergo", "-o", os.DevNull, "./stager")
	}
}

// maxConflicts is how many files a person may have to merge in an update by 50 commits.
const maxConflicts = 2

// room is a fork's change in a file of a room: text after a line.
type room struct{ file, line, change string }

func rooms() []room {
	return []room{
		{"spec/policies.go", `{"always", .*`, `{"after-success", RestartPolicy{AfterSuccess: true}},`},
		{"supervisor/policy.go", `package supervisor`, `// Policies of the annex.`},
		{"plan/isolators.go", `package plan`, `// Isolators of the annex.`},
		{"boot/boot.go", `package boot`, `// Steps of the annex.`},
	}
}

func (f tree) changeRooms() {
	f.t.Helper()
	for _, room := range rooms() {
		text := f.read(room.file)
		changed := regexp.MustCompile(`(?m)^(\s*)`+room.line+`$`).ReplaceAllString(text, "$0\n$1"+room.change)
		if changed == text {
			f.t.Fatalf("%s has no line %s", room.file, room.line)
		}
		f.write(room.file, changed)
	}
}

// clone clones this repository, of which a fresh clone may have the last commits only.
func clone(t *testing.T) tree {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	f := tree{t, filepath.Join(t.TempDir(), "fork")}
	here := tree{t, filepath.Dir(f.dir)}
	here.run(nil, "git", "clone", "--quiet", top, f.dir)
	f.run(nil, "git", "config", "user.name", "Annex")
	f.run(nil, "git", "config", "user.email", "annex@example.com")
	return f
}

func (f tree) commit(name string) string {
	f.t.Helper()
	return strings.TrimSpace(f.run(nil, "git", "rev-parse", name))
}

// commits counts the commits from HEAD back by the first parents.
func (f tree) commits() int {
	f.t.Helper()
	return len(f.lines("git", "rev-list", "--first-parent", "HEAD"))
}

func (f tree) lines(args ...string) []string {
	f.t.Helper()
	return strings.Fields(f.run(nil, args...))
}
