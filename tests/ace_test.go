package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/harness"
)

// The acceptance program of appc, unchanged: its two images in one pod, which
// talk through a volume.
func TestAcceptanceProgramPasses(t *testing.T) {
	for _, starter := range spec.Starters() {
		t.Run(starter, func(t *testing.T) { acceptanceProgramPasses(t, fmt.Sprintf(`{"runtime": %q}`, starter)) })
	}
}

func acceptanceProgramPasses(t *testing.T, config string) {
	b := suite.NewMachine(t, harness.OwnStore(), harness.StagerConfig(config))
	b.Must("image", "import", filepath.Join(suite.Images, "ace-main.aci"), filepath.Join(suite.Images, "ace-sidekick.aci"))
	b.LayersAreNow()
	doc := filepath.Join(suite.Images, "pods/ace.json")
	for attempt := 1; ; attempt++ {
		slow := runAcceptanceProgram(t, b, doc)
		if !slow {
			return
		}
		if attempt == 5 {
			t.Fatalf("the metadata service has not answered within the program's limit in %d runs", attempt)
		}
	}
}

// runAcceptanceProgram runs the pod once, and returns whether all that is wrong is the program's own limit: it waits
// 100 ms for an answer of the metadata service, and a busy machine may let neither run for so long.
func runAcceptanceProgram(t *testing.T, b *harness.Machine, doc string) (slow bool) {
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "ace", doc))
	defer p.Stop()
	for app, want := range map[string]string{
		"ace-validator-main":     "prestart OK\nmain OK\npoststop OK\n",
		"ace-validator-sidekick": "sidekick OK\n",
	} {
		r := b.Launcher("logs", "--follow", "ace", app)
		if onlySlow(r.Stderr) {
			slow = true
			continue
		}
		if r.Code != 0 || r.Stdout != want || r.Stderr != "" {
			t.Errorf("%s says %q and %q, want %q; exit status %d", app, r.Stdout, r.Stderr, want, r.Code)
		}
		if code, reason := p.Exited(app); code != 0 || reason != "" {
			t.Errorf("%s ended with %d %s", app, code, reason)
		}
	}
	return slow
}

// onlySlow says whether the acceptance program has errors, and each is of its own limit.
func onlySlow(stderr string) bool {
	lines := slices.Collect(strings.Lines(stderr))
	return len(lines) > 0 && !slices.ContainsFunc(lines, func(line string) bool {
		return !strings.Contains(line, "Client.Timeout exceeded")
	})
}

// appc's actool accepts every image and every pod manifest that is built here.
func TestSpecificationsToolAcceptsWhatIsBuilt(t *testing.T) {
	actool := filepath.Join(t.TempDir(), "actool")
	build := exec.Command("go", "build", "-o", actool, "github.com/appc/spec/actool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if r := harness.Finish(t, build); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, path := range built(t) {
		if r := harness.Finish(t, exec.Command(actool, "validate", path)); r.Code != 0 {
			t.Errorf("%s: %s%s", path, r.Stdout, r.Stderr)
		}
	}
}

// built returns the files of all images, and the manifests of the images and pods.
func built(t *testing.T) []string {
	t.Helper()
	paths := []string{suite.StagerACI, "../aci-manifest.json"}
	for _, pattern := range []string{
		filepath.Join(suite.Images, "*.aci"), filepath.Join(suite.Images, "pods/*.json"), "images/*/manifest.json",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("nothing is built as %s: %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths
}
