package callins

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// holding is a script that locks one of its pipes, as the leader of its own session after before.
func holding(t *testing.T, before string, stream int) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s=holder %s %s %d", roleVariable, before, self, stream)
}

// awaitLocked waits until as many threads of the pod wait for a locked pipe.
func (p *testPod) awaitLocked(count int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%d threads of the pod wait for a locked pipe", count), func() bool {
		n := 0
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.cmd.Process.Pid))
		for _, task := range tasks {
			state, _ := os.ReadFile(task + "/stat") // a thread may end meanwhile
			where, _ := os.ReadFile(task + "/wchan")
			if bytes.Contains(state, []byte(") D ")) && bytes.Contains(where, []byte("pipe_")) {
				n++
			}
		}
		return n >= count
	})
}

// A command that locks its stdout, stderr or stdin holds up its own streams only: its caller can be killed, and the next
// command starts when it has been.
func TestACommandThatLocksItsPipeHoldsNoCaller(t *testing.T) {
	p := newPod(t, sleeper)
	for stream := range 3 {
		t.Run(fmt.Sprint(stream), func(t *testing.T) {
			lock := filepath.Join(t.TempDir(), "lock")
			first := p.caller("run", shell(t, holding(t, "exec flock "+lock, stream)+" "+lock), "app")
			lockedCaller(t, p, first, stream, lock)
			if err := first.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(t, first.Wait()); got != 137 {
				t.Errorf("exit code %d, want 137", got)
			}
			next := shell(t, "flock --nonblock "+lock+" echo free")
			if diff := cmp.Diff(result{Stdout: "free\n"}, finish(t, p.caller("run", next, "app"))); diff != "" {
				t.Errorf("the next command (-want +got):\n%s", diff)
			}
		})
	}
}

// lockedCaller starts a caller of a command that locks a pipe, and returns once it has: for an output, once the pod waits
// for that. Stdin never ends, and what comes is read once the pipe is locked.
func lockedCaller(t *testing.T, p *testPod, cmd *exec.Cmd, stream int, mark string) {
	t.Helper()
	in, out := pipeOf(t)
	read, write := pipeOf(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(out, pattern{}) }() // ends with the pipe
	awaitSplice(t, mark)
	go func() { _, _ = io.Copy(io.Discard, read) }() // likewise
	if stream != 0 {
		p.awaitLocked(1)
	}
}

// awaitSplice waits until a process with an argument is in splice(2).
func awaitSplice(t *testing.T, argument string) {
	t.Helper()
	splice := fmt.Appendf(nil, "%d ", unix.SYS_SPLICE)
	eventually(t, "the command locks its pipe", func() bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		return slices.ContainsFunc(lines, func(path string) bool {
			line, _ := os.ReadFile(path) // it may have ended
			if !bytes.Contains(line, []byte(argument)) {
				return false
			}
			calls, _ := filepath.Glob(filepath.Dir(path) + "/task/*/syscall")
			return slices.ContainsFunc(calls, func(path string) bool {
				call, _ := os.ReadFile(path)
				return bytes.HasPrefix(call, splice)
			})
		})
	})
}

// A process that a command leaves behind may have locked the command's pipe. The output in there is lost, which run
// reports.
func TestOutputInALockedPipeIsReportedAsLost(t *testing.T) {
	p := newPod(t, sleeper)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := holding(t, "setsid", 1) + " " + fifo + " & read go <" + fifo
	cmd := p.caller("run", shell(t, script), "app")
	lockedCaller(t, p, cmd, 1, fifo)
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(t, cmd.Wait()); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
}

// Each process that is left with a lock takes a thread of the supervisor, which bounds them for each app.
func TestAnAppHasABoundedNumberOfLockedPipes(t *testing.T) {
	p := newPod(t, sleeper, testApp{Name: "other", Args: sleeper.Args})
	mark := t.TempDir()
	for i := range maxLocked {
		own := fmt.Sprint(mark, "/", i, ".")
		cmd := p.caller("run", shell(t, "exec 9<&0; "+holding(t, "setsid", 0)+" "+own+" <&9 & while [ ! -e "+own+" ]; do sleep 0.01; done"), "app")
		in, out := pipeOf(t)
		cmd.Stdin = in
		if _, err := out.Write(block[:]); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSplice(t, own)
		if err := os.WriteFile(own, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := exitCode(t, cmd.Wait()); got != 0 {
			t.Fatalf("call %d: exit code %d", i, got)
		}
	}
	p.awaitLocked(maxLocked)
	var last result
	eventually(t, "a call is refused", func() bool {
		last = finish(t, p.caller("run", shell(t, "true"), "app"))
		return last.Code != 0
	})
	refused := fmt.Sprintf("run: app \"app\": processes have locked the streams of %d ended commands\n", maxLocked)
	if diff := cmp.Diff(result{Stderr: refused, Code: exitFailed}, last); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := finish(t, p.caller("run", shell(t, "echo free"), "other")); got.Stdout != "free\n" {
		t.Errorf("in another app: %+v", got)
	}
}
