package tests

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/names"
)

// The image's label, the program in it and its log have one version, and the launcher has its own.
func TestTheVersionIsInLabelProgramAndLog(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	var images []struct {
		Name   string
		Labels map[string]string
	}
	if err := json.Unmarshal([]byte(b.must("image", "list", "--json")), &images); err != nil {
		t.Fatal(err)
	}
	version := ""
	for _, image := range images {
		if image.Name == suite.stager.Name {
			version = image.Labels["version"]
		}
	}
	if version == "" {
		t.Fatalf("the stager's image has no version: %+v", images)
	}
	p := b.up("p", podOf(shell("a", "exec sleep 1000")))
	if log := p.stagerLog(); !strings.Contains(log, "version="+version+"\n") {
		t.Errorf("the log does not say version=%s:\n%s", version, log)
	}
	for program, args := range map[string][]string{p.root(names.Exec): {"--version"}, suite.launcher: {"--version"}} {
		out, err := exec.Command(program, args...).Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) != 2 || program == p.root(names.Exec) && fields[1] != version || fields[1] == "unknown" {
			t.Errorf("%s %s prints %q, %v, want the version %s", program, args[0], out, err, version)
		}
	}
	p.stop()
}
