package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

func TestSpecificationExampleRuns(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := filepath.Join(suite.Images, "pods/nats.json")
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "example1", doc))
	r := harness.Finish(t, p.InNetwork(filepath.Join(suite.Images, "natstalk"), "greetings", "hello"))
	if r.Code != 0 || !strings.Contains(r.Stdout, "received on greetings: hello\n") {
		t.Errorf("natstalk: exit status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if s := p.Status()["nats"]; s.Exited || s.PID <= 0 || s.Code != nil {
		t.Errorf("status %+v", s)
	}
	p.Sees("nats", "Server is ready")
	checkExampleManifest(t, p)
	p.Stop()
}

// checkExampleManifest compares the stager's manifest with the document in the specification, apart
// from the image IDs.
func checkExampleManifest(t *testing.T, p *harness.Pod) {
	t.Helper()
	var have map[string]json.RawMessage
	data, err := os.ReadFile(p.Root("manifest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &have); err != nil {
		t.Fatal(err)
	}
	id := suite.IDs["nats"]
	for key, want := range map[string]string{
		"appImageOrder": `{"nats":["` + id + `"]}`,
		"name":          `"example1"`,
		"kurmaVersion":  `"0.4.1"`,
	} {
		if string(have[key]) != want {
			t.Errorf("%s is %s, want %s", key, have[key], want)
		}
	}
}

func TestThreeRealProgramsShareAVolume(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := filepath.Join(suite.Images, "pods/three.json")
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "web", doc))
	harness.Eventually(t, "redis answers", func() bool {
		return strings.TrimSpace(p.Exec("redis", "/usr/bin/redis-cli", "ping").Stdout) == "PONG"
	})
	for _, tt := range []struct{ command, want string }{
		{"set greeting hello", "OK"},
		{"get greeting", "hello"},
	} {
		r := p.Exec("redis", append([]string{"/usr/bin/redis-cli"}, strings.Fields(tt.command)...)...)
		if strings.TrimSpace(r.Stdout) != tt.want {
			t.Errorf("%s: %q, want %q (%s)", tt.command, r.Stdout, tt.want, r.Stderr)
		}
	}
	harness.Eventually(t, "nginx serves what the writer wrote", func() bool {
		return p.Exec("writer", "/bin/wget", "-q", "-O", "-", "http://127.0.0.1:8080/").Stdout == "hello from the writer\n"
	})
	p.Sees("nginx", "GET / HTTP/1.1")
	p.Stop()
}
