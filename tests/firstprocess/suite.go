package firstprocess

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// ownPID and hostPID are namespaces of a supervisor: of its own, and the daemon's.
const (
	ownPID  = unix.CLONE_NEWPID
	hostPID = 0
)

// Run tests a first process. The test program that calls Run is that process if it is called by the stager's name.
func Run(t *testing.T) {
	if os.Getenv(roleVariable) == roleSender {
		if sent, err := hostile.Signal(1); err != nil || sent == 0 {
			t.Errorf("%d signals are sent: %v", sent, err)
		}
		return
	}
	for name, test := range map[string]func(t *testing.T){
		"ends as the supervisor ends":                          endsAlike,
		"keeps the ready pipe until the pod is up":             keepsReady,
		"passes the daemon's signals on":                       passesSignals,
		"takes signals that the supervisor does not":           neverBlocks,
		"takes the supervisor with it":                         takesSupervisor,
		"kills what a supervisor in the host's PIDs has left":  killsOrphans,
		"leaves the supervisor to no signal of its pod":        outlivesSignals,
		"starts the supervisor in the root, no signal blocked": startsClean,
	} {
		t.Run(name, test)
	}
}

// process is a first process under test.
type process struct {
	*exec.Cmd
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Reader
	ready *os.File // the read end, which the test has
}

// ignoring is a setup by which the first process starts with signals ignored; a shell's trap cannot ignore SIGCHLD.
const ignoring = "wrap='env --ignore-signal=TERM,INT,QUIT,CHLD,PIPE'"

// start starts the first process in a chroot, after a shell has executed setup, by the command of the variable wrap if
// setup sets it.
func start(t *testing.T, role string, namespaces uintptr, setup string) *process {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, script := filepath.Join(dir, names.Program), filepath.Join(dir, "start")
	if err := os.Symlink(own, program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+setup+"\nexec $wrap "+program+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	t.Cleanup(cancel)
	p := &process{Cmd: daemon.Chroot(ctx, t.TempDir(), script), t: t}
	p.Env = append(p.Env, Environment(role, namespaces)...)
	p.Stderr = os.Stderr
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe() // not StdoutPipe, which Wait closes
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout, p.out = write, bufio.NewReader(read)
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.ready, p.ExtraFiles = readyRead, []*os.File{readyWrite}
	t.Cleanup(func() { _, _ = read.Close(), readyRead.Close() })
	err = p.Start()
	_, _ = write.Close(), readyWrite.Close()
	if err == nil {
		err = read.SetReadDeadline(time.Now().Add(surroundings.Patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Process.Kill(), p.Wait() })
	return p
}

// says checks the supervisor's next lines.
func (p *process) says(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if line, err := p.out.ReadString('\n'); line != want+"\n" {
			p.t.Fatalf("the supervisor says %q, %v, want %q", line, err, want)
		}
	}
}

// isSilent checks that nothing has the supervisor's stdout any more.
func (p *process) isSilent() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.out); err != nil {
		p.t.Errorf("the supervisor, or what it has started, is still there: %q, %v", rest, err)
	}
}

// ends checks the exit code.
func (p *process) ends(want int) {
	p.t.Helper()
	_ = p.Wait() // the state has the outcome
	if code := p.ProcessState.ExitCode(); code != want {
		p.t.Errorf("exit code %d, want %d", code, want)
	}
}

func (p *process) signal(sig unix.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

func endsAlike(t *testing.T) {
	for name, test := range map[string]struct {
		role       string
		namespaces uintptr
		code       int
	}{
		"exit": {"exit", ownPID, 7}, "exit, host's PIDs": {"exit", hostPID, 7}, "more namespaces": {"exit", ownPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, 7},
		"killed": {"killed", hostPID, 1}, "before it settles": {"early", ownPID, 3},
		"one at a time": {"alone", ownPID | unix.CLONE_NEWIPC, 7},
	} {
		t.Run(name, func(t *testing.T) {
			for _, setup := range []string{"", ignoring} {
				start(t, test.role, test.namespaces, setup).ends(test.code)
			}
		})
	}
}

func keepsReady(t *testing.T) {
	p := start(t, "ready", ownPID, "")
	p.says("closed")
	if err := p.ready.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ready.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("before the pod is up the ready pipe says %v", err)
	}
	if err := p.ready.SetReadDeadline(time.Now().Add(surroundings.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	p.says("up")
	if _, err := p.ready.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("when the pod is up the ready pipe says %v", err)
	}
	_ = p.in.Close()
	p.ends(0)
}

func passesSignals(t *testing.T) {
	for name, setup := range map[string]string{"as usual": "", "ignored by the daemon": ignoring} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "watch", ownPID, setup)
			p.says("up")
			p.signal(unix.SIGPIPE)
			p.signal(unix.SIGCHLD)
			for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
				p.signal(sig)
				p.says("stop")
			}
			p.signal(unix.SIGKILL)
			p.isSilent()
		})
	}
}

// neverBlocks fills the supervisor's line with orders that it does not read.
func neverBlocks(t *testing.T) {
	p := start(t, "deaf", ownPID, "")
	p.says("up")
	for i := range 1000 {
		p.signal(unix.SIGTERM)
		taken := func() bool {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
			return err == nil && strings.Contains(string(status), "\nShdPnd:\t0000000000000000\n")
		}
		if !poll.Until(surroundings.Patience, time.Millisecond, taken) {
			t.Fatalf("signal %d is not taken", i)
		}
	}
	_ = p.in.Close()
	p.ends(0)
}

func outlivesSignals(t *testing.T) {
	p := start(t, "signals", ownPID, "")
	p.says("up", "signals are sent")
	p.ends(0)
}

// Faults tests that a supervisor with a fault of its own ends, although other processes' signals do not end it, and
// the first process with that exit code: 2 is the Go runtime's, with its report, 1 stands for a signal.
func Faults(t *testing.T, code int) {
	p := start(t, "fault", ownPID, "")
	p.says("up")
	p.ends(code)
}

func takesSupervisor(t *testing.T) {
	for name, test := range map[string]struct {
		role       string
		namespaces uintptr
		says       string
	}{
		"watches": {"watch", ownPID, ""}, "does not watch": {"deaf", ownPID, ""}, "watches, host's PIDs": {"watch", hostPID, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, test.role, test.namespaces, "")
			p.says("up")
			p.signal(unix.SIGKILL)
			rest, err := io.ReadAll(p.out)
			if err != nil || !strings.Contains(string(rest), test.says) || test.says == "" && len(rest) > 0 {
				t.Errorf("the supervisor says %q, %v, want %q", rest, err, test.says)
			}
		})
	}
}

func killsOrphans(t *testing.T) {
	p := start(t, "orphans", hostPID, "")
	p.says("up")
	p.isSilent()
	p.ends(0)
}

// startsClean tests that the supervisor starts in the root, with no signal blocked.
func startsClean(t *testing.T) {
	p := start(t, "state", ownPID, "cd /usr; trap '' USR1")
	var state strings.Builder
	for line := ""; line != "end\n"; {
		var err error
		if line, err = p.out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		state.WriteString(line)
	}
	for _, want := range []string{"\nSigBlk:\t0000000000000000\n", "\ndirectory: / <nil>\n"} {
		if !strings.Contains(state.String(), want) {
			t.Errorf("the supervisor's state lacks %q:\n%s", want, state.String())
		}
	}
	p.ends(0)
}

// KeepsMounts tests that the first process does not see the supervisor's mounts, and the supervisor sees the daemon's.
func KeepsMounts(t *testing.T) {
	p := start(t, "mount", ownPID, "mount --make-rshared /")
	p.says("up", "mounted")
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.Process.Pid))
	if err != nil || strings.Contains(string(mounts), " inside ") {
		t.Errorf("the supervisor's mount is the first process's: %v\n%s", err, mounts)
	}
	in := fmt.Sprintf("--mount=/proc/%d/ns/mnt", p.Process.Pid)
	root := fmt.Sprintf("--root=/proc/%d/root", p.Process.Pid)
	if out, err := exec.Command("nsenter", in, root, "mount", "-t", "tmpfs", "later", "/mnt").CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	if _, err := p.in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if line, err := p.out.ReadString('\n'); err != nil || !strings.Contains(line, " later ") {
		t.Errorf("the daemon's later mount is not the supervisor's: %v\n%s", err, line)
	}
	p.ends(0)
}

// KeepsDescriptors tests that a first process that waits has at most so many descriptors open, whatever the
// daemon has passed.
func KeepsDescriptors(t *testing.T, most int) {
	p := start(t, "watch", ownPID, "exec 6>&1 7>&1 8>&1 9>&1")
	p.says("up")
	var open []os.DirEntry
	poll.Until(surroundings.Patience, time.Millisecond, func() bool {
		open, _ = os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process.Pid))
		return len(open) <= most
	})
	if len(open) > most {
		t.Errorf("descriptors %v are open", open)
	}
}

// HasUmask tests that the supervisor has the umask 022, whatever the daemon's is.
func HasUmask(t *testing.T) {
	p := start(t, "state", ownPID, "umask 077")
	state, err := io.ReadAll(p.out)
	if err != nil || !strings.Contains(string(state), "\numask: 22\n") {
		t.Errorf("%v: the supervisor's state is\n%s", err, state)
	}
}

// KeepsRoot tests that the supervisor, which calls LeaveRoot, cannot leave the chroot into which the daemon has put
// the stager, also on a host that runs from its initial RAM disk, where pivot_root(2) fails, and that no mount of a shared
// volume goes with the host's root.
func KeepsRoot(t *testing.T) {
	for name, chroot := range map[string]func(ctx context.Context, folder, program string) *exec.Cmd{
		"host": daemon.Chroot, "host on its initial RAM disk": daemon.ChrootOnRAMDisk,
		"host that shares a volume": daemon.ChrootWithVolume,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			own, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), names.Program)
			if err := os.Symlink(own, program); err != nil {
				t.Fatal(err)
			}
			cmd := chroot(ctx, t.TempDir(), program)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}
		})
	}
}
