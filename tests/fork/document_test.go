package fork

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The test executes the commands of docs/fork.md in a copy of the tree, word for
// word and in one shell. The images of the test pods are those that have been built already.
func TestForkDocumentIsTrue(t *testing.T) {
	f := copyTree(t)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(f.read("docs/fork.md"), -1)
	if len(blocks) < 7 {
		t.Fatalf("docs/fork.md has %d blocks of commands", len(blocks))
	}
	script := "set -eux\n"
	for _, block := range blocks {
		script += block[1]
	}
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
