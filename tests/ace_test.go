package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The acceptance program of appc, unchanged: its two images in one pod, which
// talk through a volume.
func TestAcceptanceProgramPasses(t *testing.T) {
	b := newMachine(t, ownStore())
	b.must("image", "import", filepath.Join(suite.images, "ace-main.aci"), filepath.Join(suite.images, "ace-sidekick.aci"))
	b.layersAreNow()
	doc := filepath.Join(suite.images, "pods/ace.json")
	p := b.adopt(b.must("run", "--json", "--detach", "--name", "ace", doc))
	for app, want := range map[string]string{
		"ace-validator-main":     "prestart OK\nmain OK\npoststop OK\n",
		"ace-validator-sidekick": "sidekick OK\n",
	} {
		r := b.launcher("logs", "--follow", "ace", app)
		if r.code != 0 || r.stdout != want || r.stderr != "" {
			t.Errorf("%s says %q and %q, want %q; exit status %d", app, r.stdout, r.stderr, want, r.code)
		}
		if code, reason := p.exited(app); code != 0 || reason != "" {
			t.Errorf("%s ended with %d %s", app, code, reason)
		}
	}
	p.stop()
}

// appc's actool accepts every image and every pod manifest that is built here.
func TestSpecificationsToolAcceptsWhatIsBuilt(t *testing.T) {
	actool := filepath.Join(t.TempDir(), "actool")
	build := exec.Command("go", "build", "-o", actool, "github.com/appc/spec/actool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if r := finish(t, build); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for _, path := range built(t) {
		if r := finish(t, exec.Command(actool, "validate", path)); r.code != 0 {
			t.Errorf("%s: %s%s", path, r.stdout, r.stderr)
		}
	}
}

// built returns the files of all images, and the manifests of the images and pods.
func built(t *testing.T) []string {
	t.Helper()
	paths := []string{suite.stagerACI, "../aci-manifest.json"}
	for _, pattern := range []string{
		filepath.Join(suite.images, "*.aci"), filepath.Join(suite.images, "pods/*.json"), "images/*/manifest.json",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing is built as %s: %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths
}
