package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSpecificationExampleRuns(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	doc := filepath.Join(suite.images, "pods/nats.json")
	p := b.adopt(b.must("run", "--json", "--detach", "--name", "example1", doc))
	r := finish(t, p.inNetwork(filepath.Join(suite.images, "natstalk"), "greetings", "hello"))
	if r.code != 0 || !strings.Contains(r.stdout, "received on greetings: hello\n") {
		t.Errorf("natstalk: exit status %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if s := p.status()["nats"]; s.Exited || s.PID <= 0 || s.Code != nil {
		t.Errorf("status %+v", s)
	}
	p.sees("nats", "Server is ready")
	checkExampleManifest(t, p)
	p.stop()
}

// checkExampleManifest compares the stager's manifest with the document in the specification, apart
// from the image IDs.
func checkExampleManifest(t *testing.T, p *pod) {
	t.Helper()
	var have map[string]json.RawMessage
	data, err := os.ReadFile(p.root("manifest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &have); err != nil {
		t.Fatal(err)
	}
	id := suite.ids["nats"]
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
	b := newMachine(t)
	doc := filepath.Join(suite.images, "pods/three.json")
	p := b.adopt(b.must("run", "--json", "--detach", "--name", "web", doc))
	eventually(t, "redis answers", func() bool {
		return strings.TrimSpace(p.exec("redis", "/usr/bin/redis-cli", "ping").stdout) == "PONG"
	})
	for _, tt := range []struct{ command, want string }{
		{"set greeting hello", "OK"},
		{"get greeting", "hello"},
	} {
		r := p.exec("redis", append([]string{"/usr/bin/redis-cli"}, strings.Fields(tt.command)...)...)
		if strings.TrimSpace(r.stdout) != tt.want {
			t.Errorf("%s: %q, want %q (%s)", tt.command, r.stdout, tt.want, r.stderr)
		}
	}
	eventually(t, "nginx serves what the writer wrote", func() bool {
		return p.exec("writer", "/bin/wget", "-q", "-O", "-", "http://127.0.0.1:8080/").stdout == "hello from the writer\n"
	})
	p.sees("nginx", "GET / HTTP/1.1")
	p.stop()
}
