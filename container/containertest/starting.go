package containertest

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/hostile"
)

const walkCommand = "containertest-walk"

// walk prints whether there is a /proc. Then it reads PIDs, one to a line, and prints what it can do with the files of
// each in /proc, on one line with commas. It is the test program inside a container.
func walk() {
	_, err := os.ReadFile("/proc/self/stat")
	fmt.Fprintln(os.Stdout, err)
	for pids := bufio.NewScanner(os.Stdin); pids.Scan(); {
		var pid int
		if _, err := fmt.Sscan(pids.Text(), &pid); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return
		}
		fmt.Fprintln(os.Stdout, strings.Join(hostile.Proc(pid), ","))
	}
}

// walker is an app that runs walk.
type walker struct {
	*app
	user, cgroup string
	ask          *os.File
	said         *bufio.Reader
}

func (b *bench) walker(user string, ownPIDs bool, capabilities ...string) *walker {
	b.t.Helper()
	stdin, ask, err := os.Pipe()
	must(b.t, err)
	out, stdout, err := os.Pipe()
	must(b.t, err)
	s := b.spec("/walker", walkCommand)
	s.Process.User, s.Process.Group, s.OwnPIDs = user, user, ownPIDs
	s.Process.Capabilities = append(s.Process.Capabilities, capabilities...)
	a := b.start(s, spec.Stdio{Stdin: stdin, Stdout: stdout, Stderr: stdout})
	w := &walker{app: a, user: user, cgroup: s.Cgroup, ask: ask, said: bufio.NewReader(out)}
	must(b.t, stdin.Close())
	must(b.t, stdout.Close())
	must(b.t, out.SetReadDeadline(time.Now().Add(timeLimit)))
	b.t.Cleanup(func() { _, _ = ask.Close(), out.Close() })
	if line := w.line(); line != "<nil>" {
		b.t.Fatalf("an app of user %s has no /proc: %s", user, line)
	}
	return w
}

// can returns what the walker can do with the files of a process.
func (w *walker) can(pid int) []string {
	w.b.t.Helper()
	_, err := fmt.Fprintln(w.ask, pid)
	must(w.b.t, err)
	return strings.Split(w.line(), ",")
}

func (w *walker) line() string {
	w.b.t.Helper()
	line, err := w.said.ReadString('\n')
	must(w.b.t, err)
	return strings.TrimSpace(line)
}

// wantHarmless checks what the walker can do with the files of a process.
func (w *walker) wantHarmless(what string, pid int) {
	w.b.t.Helper()
	lines := w.can(pid)
	if !slices.Contains(lines, "read stat") {
		w.b.t.Errorf("user %s can do with files of %s: %q only, so this test shows nothing", w.user, what, lines)
	}
	if harmful := hostile.Harmful(lines, w.user == "0"); len(harmful) > 0 {
		w.b.t.Errorf("user %s can do with files of %s: %q", w.user, what, harmful)
	}
}

// closedStarts checks that apps of the pod, user 0 with further capabilities, read and change nothing but what is
// harmless of a process that is about to execute an app or a command. Its last step waits for a lease of the program
// (fcntl(2), F_SETLEASE).
func closedStarts(b *bench, capabilities ...string) {
	signal.Ignore(unix.SIGIO) // by which the kernel asks for the lease back
	defer signal.Reset(unix.SIGIO)
	b.copy("/proc/self/exe", "walker")
	walkers := []*walker{b.walker("0", false, capabilities...), b.walker("1000", false)}
	for _, user := range []string{"0", "1000"} {
		look := func(pid int) {
			for _, w := range walkers {
				w.wantHarmless("a start of user "+user, b.inPod(pid))
			}
		}
		s := b.spec(heldProgram)
		s.Process.User, s.Process.Group = user, user
		b.held(s.Cgroup, look, func() (spec.Running, error) {
			a, err := b.try(s, spec.Stdio{})
			if err != nil {
				return nil, err
			}
			b.t.Cleanup(func() { must(b.t, a.end()) })
			return a.main, nil
		})
		cmd := command(heldProgram)
		cmd.User, cmd.Group = user, user
		for _, around := range walkers {
			b.held(around.cgroup, look, func() (spec.Running, error) { return around.tryExec(cmd, spec.Stdio{}) })
		}
	}
}

// closedCommands checks the same of commands that start in apps with PID namespaces of their own.
func closedCommands(b *bench, capabilities ...string) {
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	b.copy("/proc/self/exe", "walker")
	for _, w := range []*walker{b.walker("0", true, capabilities...), b.walker("1000", true)} {
		for _, user := range []string{"0", "1000"} {
			look := func(pid int) { w.wantHarmless("a command of user "+user, b.innermost(pid)) }
			cmd := command(heldProgram)
			cmd.User, cmd.Group = user, user
			b.held(w.cgroup, look, func() (spec.Running, error) { return w.tryExec(cmd, spec.Stdio{}) })
		}
	}
}

const heldProgram = "/held/true"

// held has a start wait before its exec of heldProgram, in a cgroup, and calls look meanwhile with the PID that waits.
func (b *bench) held(cgroup string, look func(pid int), start func() (spec.Running, error)) {
	b.t.Helper()
	must(b.t, os.MkdirAll(filepath.Join(b.root, filepath.Dir(heldProgram)), 0o755))
	b.copy("/bin/busybox", heldProgram)
	// A close for writing ends the lease before the writing: an exec in between fails with ETXTBSY.
	program, err := os.Open(filepath.Join(b.root, heldProgram))
	must(b.t, err)
	_, err = unix.FcntlInt(program.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	must(b.t, err)
	type started struct {
		child spec.Running
		err   error
	}
	result := make(chan started, 1)
	go func() {
		child, err := start()
		result <- started{child, err}
	}()
	pid := 0
	b.eventually("a process waits for the lease", func() bool {
		pid = waitingForExec(cgroup)
		return pid != 0 || len(result) > 0
	})
	if pid != 0 {
		look(pid)
	}
	must(b.t, program.Close()) // the lease ends
	r := <-result
	must(b.t, r.err)
	if status, err := wait(r.child); err != nil || r.child.PID() != pid || status != 0 {
		b.t.Errorf("process %d has waited, and the start of %d ends with %#x, %v", pid, r.child.PID(), status, err)
	}
	must(b.t, os.Remove(filepath.Join(b.root, heldProgram)))
}

// waitingForExec returns a process of a cgroup that sleeps in execve(2) (proc(5), syscall and stat), or 0.
func waitingForExec(cgroup string) int {
	for _, pid := range processesIn(cgroup) {
		call, _ := os.ReadFile("/proc/" + pid + "/syscall")
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		if strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_EXECVE)+" ") && strings.Contains(string(stat), ") S ") {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	return 0
}
