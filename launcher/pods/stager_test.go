package pods

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
