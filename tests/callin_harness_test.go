package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// settings are what the call-in run reads from descriptor 3.
type settings struct {
	Exec             []string            `json:"exec"`
	User             string              `json:"user"`
	Group            string              `json:"group"`
	SupplementaryGID []int               `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string              `json:"workingDirectory,omitempty"`
	Environment      []harness.NameValue `json:"environment,omitempty"`
	TTY              bool                `json:"tty,omitempty"`
}

// asRoot are the settings of a shell script.
func asRoot(script string) settings {
	return settings{Exec: []string{"/bin/sh", "-c", script}, User: "0", Group: "0"}
}

// settingsPipe returns the call-in run as a daemon executes it, and the write end of its settings;
// nothing is written yet.
func settingsPipe(p *harness.Pod, app string) (*exec.Cmd, *os.File) {
	p.T.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { read.Close(); write.Close() })
	cmd := p.CallIn("run", app)
	cmd.ExtraFiles = []*os.File{read}
	return cmd, write
}

// feed writes the settings, without a newline, and closes the pipe.
func feed(t *testing.T, write *os.File, s settings) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := write.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
}

// run runs a command in an app as a Kurma daemon of 2016 does: descriptors 1 and 2 are the same
// pipe, and stdin is empty. It returns the output of the pipe.
func run(p *harness.Pod, app string, s settings) (output string, code int) {
	p.T.Helper()
	cmd, write := settingsPipe(p, app)
	out, theirs, err := os.Pipe()
	if err != nil {
		p.T.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = theirs, theirs
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	late := time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() })
	theirs.Close()
	feed(p.T, write, s)
	text, err := io.ReadAll(out)
	if err != nil {
		p.T.Fatal(err)
	}
	_ = cmd.Wait() // its status is the answer
	if !late.Stop() {
		p.T.Fatalf("run %q hangs: %s", s.Exec, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// succeeds runs a script as root in an app, which must exit 0, and returns its output.
func succeeds(p *harness.Pod, app, script string) string {
	p.T.Helper()
	out, code := run(p, app, asRoot(script))
	if code != 0 {
		p.T.Errorf("exit status %d of %q: %s", code, script, out)
	}
	return out
}

// testProgram copies this test program into a folder, which a pod can use as a volume. cp has it open for writing, and
// not the tests' process, of which another test may fork a copy meanwhile: the program could not be executed.
func testProgram(b *harness.Machine, dir string) {
	b.T.Helper()
	harness.RunAll(b.T, []string{"cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), filepath.Join(dir, "probe")})
}

// pidOf returns the PID of a running command.
func pidOf(cmd *exec.Cmd) string { return strconv.Itoa(cmd.Process.Pid) }
