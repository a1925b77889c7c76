package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// A caller has streams that a hostile command gets: a script that is open for reading, a pipe that holds bytes already,
// and a null device of the host, which is not the machine's own, for a failure of the test would change that.
type caller struct {
	script, out, null *os.File // what the command gets
	pipe              *os.File // the end of out that the caller reads
	before            []string
}

const (
	callersScript = "echo the caller's next command\n"
	callersBytes  = "written before the command\n"
)

func newCaller(t *testing.T) *caller {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	err := os.WriteFile(path, []byte(callersScript), 0o640)
	script, openErr := os.Open(path)
	device := filepath.Join(filepath.Dir(path), "null")
	nodErr := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	null, nullErr := os.OpenFile(device, os.O_RDWR, 0)
	read, write, pipeErr := os.Pipe()
	if err := errors.Join(err, openErr, nodErr, nullErr, pipeErr); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil { // run widens smaller ones
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _, _ = script.Close(), null.Close(), read.Close(), write.Close() })
	c := &caller{script: script, out: write, null: null, pipe: read}
	c.before = c.state(t)
	return c
}

// state is what a command must not change of the caller's streams.
func (c *caller) state(t *testing.T) (all []string) {
	t.Helper()
	for _, f := range []*os.File{c.script, c.out, c.null} {
		var st unix.Stat_t
		flags, flagsErr := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err := errors.Join(unix.Fstat(int(f.Fd()), &st), flagsErr); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s: mode %o, owner %d:%d, flags %o", f.Name(), st.Mode, st.Uid, st.Gid, flags))
	}
	size, err := unix.FcntlInt(c.out.Fd(), unix.F_GETPIPE_SZ, 0)
	text, readErr := os.ReadFile(c.script.Name())
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	return append(all, fmt.Sprintf("pipe of %d bytes", size), string(text))
}

// reopened has a command do to the caller's streams what it can, until it has run to its end, and checks that they are
// as before. The caller's place in the script is behind what run has read ahead.
func (c *caller) reopened(p *harness.Pod, app string) {
	p.T.Helper()
	harness.Eventually(p.T, "a command tries its streams in "+app, func() bool {
		if _, err := c.out.WriteString(callersBytes); err != nil {
			p.T.Fatal(err)
		}
		cmd := p.Command("exec", "--interactive", p.Name, app, "--", "/probe/probe", "reopen")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = c.script, c.out, c.null
		code := attemptTo(p, cmd)
		seen := make([]byte, 1<<16)
		n, err := c.pipe.Read(seen)
		// A command that was given up may have written before.
		if err != nil || !strings.Contains(string(seen[:n]), callersBytes) {
			p.T.Errorf("the caller's pipe has %q, %v; want %q", seen[:n], err, callersBytes)
		}
		if after := c.state(p.T); !slices.Equal(after, c.before) {
			p.T.Fatalf("after the command the caller has %q, before %q", after, c.before)
		}
		return code == 0
	})
}
