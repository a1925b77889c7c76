package pods

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program on a file system that is mounted noexec is refused with the reason.
func TestAProgramOnANoexecFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	name := filepath.Join(dir, "program")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := startProcess(name, []string{name}, &os.ProcAttr{}); err == nil || !strings.Contains(err.Error(), "permission denied: the file system of the pod's files is mounted noexec") {
		t.Errorf("%v", err)
	}
}

// A program starts though a process that was forked meanwhile still has it open for writing.
func TestBusyProgramStarts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "true")
	program, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := io.Copy(program, source); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { program.Close() })
	process, err := startProcess(name, []string{name}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := process.Wait(); err != nil || !state.Success() {
		t.Fatalf("%v, %v", state, err)
	}
}
