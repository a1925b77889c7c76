package harness

import (
	"bufio"
	"io"
	"os"
	"testing"
)

// attached is a run of attach with a pipe as its input and one as its output.
type attached struct {
	t      *testing.T
	stdin  io.WriteCloser
	Stdout *bufio.Reader
	wait   func() error
	Signal func(os.Signal) error
	code   func() int
}

// Attach attaches to an app as a daemon does it.
func (p *Pod) Attach(app string) *attached {
	p.T.Helper()
	cmd := p.CallIn("attach", app)
	stdin, inErr := cmd.StdinPipe()
	out, theirs, outErr := os.Pipe()
	if inErr != nil || outErr != nil {
		p.T.Fatal(inErr, outErr)
	}
	cmd.Stdout, cmd.Stderr = theirs, theirs
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	theirs.Close()
	p.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		out.Close()
	})
	return &attached{
		t: p.T, stdin: stdin, Stdout: bufio.NewReaderSize(out, 1<<16),
		wait: cmd.Wait, Signal: cmd.Process.Signal, code: func() int { return cmd.ProcessState.ExitCode() },
	}
}

// Types writes to the app.
func (a *attached) Types(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, text); err != nil {
		a.t.Fatal(err)
	}
}

// Sees waits for the output, which must be next.
func (a *attached) Sees(want string) {
	a.t.Helper()
	have := make([]byte, len(want))
	if _, err := io.ReadFull(a.Stdout, have); err != nil || string(have) != want {
		a.t.Fatalf("it shows %q, want %q: %v", have, want, err)
	}
}

// Ends reads the rest and returns it with the exit status.
func (a *attached) Ends() (rest string, code int) {
	a.t.Helper()
	text, err := io.ReadAll(a.Stdout)
	if err != nil {
		a.t.Fatal(err)
	}
	_ = a.wait() // its status is the answer
	return string(text), a.code()
}
