package e2e

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// safeBuffer is a buffer that a process writes to while a test reads it.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// The pod of the specification's example, a NATS server, in a virtual machine: what its
// daemon and its clients do with it.
func TestNATSPodRunsInAVirtualMachine(t *testing.T) {
	b := newHost(t, "nats")
	p := b.up("demo", filepath.Join(b.images, "pods/nats.json"))
	if got := p.must("ps"); !strings.Contains(got, "running") {
		t.Errorf("ps: %s", got)
	}
	if s := p.status()["nats"]; s.Exited || s.PID != p.stager {
		t.Errorf("status %+v, want it to run as %d", s, p.stager)
	}
	p.sees("nats", "Server is ready")
	talk := func() outcome {
		return finish(t, p.inNetwork(filepath.Join(b.images, "natstalk"), "greetings", "hello from outside"))
	}
	if r := talk(); r.code != 0 || !strings.Contains(r.stdout, "received on greetings: hello from outside") {
		t.Errorf("client: %+v", r)
	}
	if r := finish(t, p.exec("nats", "/gnatsd", "--version")); r.code != 0 || !strings.HasPrefix(r.stdout, "nats-server: v") {
		t.Errorf("run: %+v", r)
	}
	var shown safeBuffer
	attach := p.command("attach", p.name, "nats")
	attach.Stdout, attach.Stderr = &shown, &shown
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a client's connection in attach's output", func() bool {
		talk()
		return strings.Contains(shown.String(), "Client connection created")
	})
	if err := attach.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = attach.Wait()
	if code := attach.ProcessState.ExitCode(); code != 128+int(unix.SIGTERM) {
		t.Errorf("attach ended with %d, want 143", code)
	}
	if s := p.status()["nats"]; s.Exited {
		t.Errorf("the end of attach ended the app: %+v", s)
	}
	p.must("stop", p.name)
}
