package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// lend makes the command start with a pipe's write end as descriptors 3 to 9. It returns the
// read end, which reads end of file when no process has any of them.
func lend(t *testing.T, cmd *exec.Cmd) (read *os.File, lent func()) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	for range 7 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, write)
	}
	return read, func() { _ = write.Close() }
}

// Neither the monitor nor the stager keeps what the caller of run has open.
func TestNoProcessOfAPodInheritsDescriptors(t *testing.T) {
	h := newHost(t)
	cmd := h.command("run", "--detach", "--name", "p", "example.com/one")
	read, lent := lend(t, cmd)
	r := h.finish(cmd)
	lent()
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	defer h.run("rm", "--force", "p")
	if err := read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Errorf("who waits for the end of a descriptor waits for the pod's: %v", err)
	}
	if got := h.report(h.ps()[0].UUID).FDs; len(got) != 4 {
		t.Errorf("the stager has %v", got)
	}
}

// Call-ins refuse such descriptors themselves, see testdata/fakestager.
func TestCallInsInheritNoDescriptors(t *testing.T) {
	h := newPod(t)
	for _, args := range [][]string{
		{"status", "p"},
		{"status", "--json", "p"},
		{"logs", "p"},
		{"logs", "--json", "p"},
		{"attach", "p"},
		{"exec", "p", "--", "exit", "0"},
	} {
		cmd := h.command(args...)
		_, lent := lend(t, cmd)
		r := h.finish(cmd)
		lent()
		if r.code != 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
