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
)

// settings are what the call-in run reads from descriptor 3.
type settings struct {
	Exec             []string    `json:"exec"`
	User             string      `json:"user"`
	Group            string      `json:"group"`
	SupplementaryGID []int       `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string      `json:"workingDirectory,omitempty"`
	Environment      []nameValue `json:"environment,omitempty"`
	TTY              bool        `json:"tty,omitempty"`
}

// asRoot are the settings of a shell script.
func asRoot(script string) settings {
	return settings{Exec: []string{"/bin/sh", "-c", script}, User: "0", Group: "0"}
}

// settingsPipe returns the call-in run as a daemon executes it, and the write end of its settings;
// nothing is written yet.
func (p *pod) settingsPipe(app string) (*exec.Cmd, *os.File) {
	p.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { read.Close(); write.Close() })
	cmd := p.callIn("run", app)
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
func (p *pod) run(app string, s settings) (output string, code int) {
	p.t.Helper()
	cmd, write := p.settingsPipe(app)
	out, theirs, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = theirs, theirs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	theirs.Close()
	feed(p.t, write, s)
	text, err := io.ReadAll(out)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = cmd.Wait() // its status is the answer
	if !late.Stop() {
		p.t.Fatalf("run %q hangs: %s", s.Exec, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// succeeds runs a script as root in an app, which must exit 0, and returns its output.
func (p *pod) succeeds(app, script string) string {
	p.t.Helper()
	out, code := p.run(app, asRoot(script))
	if code != 0 {
		p.t.Errorf("exit status %d of %q: %s", code, script, out)
	}
	return out
}

// testProgram copies this test program into a folder, which a pod can use as a volume. cp has it open for writing, and not
// the tests' process, of which another test may fork a copy meanwhile: the program could not be executed.
func (b *machine) testProgram(dir string) {
	b.t.Helper()
	runAll(b.t, []string{"cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), filepath.Join(dir, "probe")})
}

// pidOf returns the PID of a running command.
func pidOf(cmd *exec.Cmd) string { return strconv.Itoa(cmd.Process.Pid) }
