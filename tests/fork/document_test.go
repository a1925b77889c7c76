package fork

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commands returns the commands of the two parts of docs/fork.md, of the copy of the template and of the fork.
func (f tree) commands() (template, fork string) {
	f.t.Helper()
	first, second, found := strings.Cut(f.read("docs/fork.md"), "\n## Fork to change a room\n")
	if !found {
		f.t.Fatal("docs/fork.md has no heading of the fork")
	}
	script := func(part string, least int) string {
		blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(part, -1)
		if len(blocks) < least {
			f.t.Fatalf("a part of docs/fork.md has %d blocks of commands", len(blocks))
		}
		text := "set -eux\n"
		for _, block := range blocks {
			text += block[1]
		}
		return text
	}
	return script(first, 1), script(second, 7)
}

// Outside of the repository, with the module from a proxy, a copy of the template is built, signed and tested: the test
// runs a pod.
func TestACopyOfTheTemplateIsAProduct(t *testing.T) {
	f := copyTree(t)
	env := append(proxied(t, publish(t, f.dir)), "CGO_ENABLED=1", "XDG_CONFIG_HOME="+t.TempDir())
	script, _ := f.commands()
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
	_, script := f.commands()
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
