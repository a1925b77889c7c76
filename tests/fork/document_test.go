package fork

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commands returns the commands of docs/fork.md between two headings, or from one to the end, as one script.
func (f tree) commands(from, to string) string {
	f.t.Helper()
	_, part, found := strings.Cut(f.read("docs/fork.md"), "\n## "+from+"\n")
	if found && to != "" {
		part, _, found = strings.Cut(part, "\n## "+to+"\n")
	}
	script := "set -eux\n"
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(part, -1) {
		script += block[1]
	}
	if !found || strings.Count(script, "\n") < 3 {
		f.t.Fatalf("docs/fork.md has no commands from %q to %q", from, to)
	}
	return script
}

// The headings of docs/fork.md that begin and end a part that a test executes.
const (
	template = "Copy the template"
	fork     = "Fork to change a room"
	naming   = "1. The names"
	changing = "3. A configuration key"
	signing  = "4. The key"
	updating = "9. Updating"
)

// Outside of the repository, with the module from a proxy, a copy of the template is built, signed and tested: the test
// runs a pod.
func TestACopyOfTheTemplateIsAProduct(t *testing.T) {
	f := copyTree(t)
	env := append(proxied(t, publish(t, f)), "CGO_ENABLED=1", "XDG_CONFIG_HOME="+t.TempDir())
	script := f.commands(template, fork)
	out := f.run(env, "sh", "-c", script)
	product := tree{t, filepath.Join(f.dir, "../product")}
	if !strings.Contains(out, "ok  \texample.com/product\t") {
		t.Errorf("the commands print\n%s", out)
	}
	mod := product.read("go.mod")
	if !strings.Contains(mod, release.Path+" "+release.Version) || strings.Contains(mod, "replace") {
		t.Errorf("the product's go.mod:\n%s", mod)
	}
	stager := filepath.Join(product.dir, "bin", "stager")
	if out := product.run(nil, stager, "--version"); out == "" || strings.Contains(out, "unknown") {
		t.Errorf("stager --version prints %q", out)
	}
}

// The test executes the commands of docs/fork.md for a fork in a copy of the tree, word for
// word and in one shell. The images of the test pods are those that have been built already.
func TestForkDocumentIsTrue(t *testing.T) {
	f := copyTree(t)
	script := f.commands(fork, updating)
	if err := os.MkdirAll(f.path("build/out"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(images(t), f.path("build/out/images")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.clearPod)
	gpg := t.TempDir()
	out := f.run([]string{"TMPDIR=" + gpg}, "sh", "-c", script)
	for _, want := range []string{"hello from the annex", "carried by the annex", "busybox  running", "/plan\t", "/tests\t"} {
		if !strings.Contains(out, want) {
			t.Errorf("the commands do not print %q:\n%s", want, out)
		}
	}
	if left, err := filepath.Glob(f.path("state")); err != nil || left != nil {
		t.Errorf("left: %q, %v", left, err)
	}
	if text := f.read("go.mod"); strings.Contains(text, "k8s.io/") || strings.Contains(text, "go-containerregistry") {
		t.Errorf("the stager alone requires what only the launcher and the server need:\n%s", text)
	}
}

// clearPod stops the document's pod, if its commands did not get so far.
func (f tree) clearPod() {
	if _, err := os.Stat(f.path("state")); err != nil {
		return
	}
	cmd := exec.Command("bin/launcher", "--config", "kurmad.json", "--state", f.path("state"), "stop", "try")
	cmd.Dir = f.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Logf("stop the pod: %v, %s", err, out)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/annex")
	if err != nil {
		f.t.Error(err)
	}
	for _, group := range append(groups, "/sys/fs/cgroup/annex") {
		_ = os.Remove(group) // not in every hierarchy
	}
}
