package tests

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// The image's label, the program in it and its log have one version, and the launcher has its own.
func TestTheVersionIsInLabelProgramAndLog(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	var version, id string
	for line := range strings.Lines(b.Must("image", "list", "--json")) {
		var image struct {
			ID, Name string
			Labels   map[string]string
		}
		if err := json.Unmarshal([]byte(line), &image); err != nil {
			t.Fatal(err)
		}
		if image.Name == suite.Stager.Name {
			version, id = image.Labels["version"], image.ID
		}
	}
	if version == "" {
		t.Fatal("the stager's image has no version")
	}
	p := b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	if log := p.StagerLog(); !strings.Contains(log, "version="+version+"\n") {
		t.Errorf("the log does not say version=%s:\n%s", version, log)
	}
	stager := filepath.Join(b.Store, id, "rootfs", names.Exec)
	for program, args := range map[string][]string{stager: {"--version"}, suite.Launcher: {"--version"}} {
		out, err := exec.Command(program, args...).Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) == 0 {
			t.Fatalf("%s %s prints %q, %v", program, args[0], out, err)
		}
		if printed := fields[len(fields)-1]; printed == "unknown" || program == stager && printed != version {
			t.Errorf("%s %s prints %q, the image has version %s", program, args[0], out, version)
		}
	}
	p.Stop()
}
