package containertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/spec"
)

// Start, Exec, PIDs, Kill, Destroy.
func lifeCases() []testCase {
	return []testCase{
		{"exit status", exitStatus},
		{"exit codes of programs that cannot be executed", func(b *bench) {
			wantExitCodes(b, map[string]int{
				"nosuchprogram": 127, "/bin/nosuchprogram": 127, "/bin/busybox/x": 127, "/etc": 126, "/bin/plain": 126, "/bin/junk": 126,
			})
		}},
		{"exit code of a script without its interpreter", func(b *bench) { wantExitCodes(b, map[string]int{"/bin/script": 127}) }},
		{"a program is looked up in PATH", func(b *bench) {
			wantFound(b, "./pwd", "PATH=/bin")
			wantFound(b, "pwd", "PATH=/nowhere:/bin:/here")
		}},
		{"an empty part of PATH is the working directory", func(b *bench) { wantFound(b, "pwd", "PATH=/nowhere:") }},
		{"without PATH a program is looked up in /bin", func(b *bench) { wantFound(b, "pwd") }},
		{"a user or group that does not exist is named", noSuchUser},
		{"a working directory that does not exist is named", noSuchDirectory},
		{"a start leaves no other process", onlyTheProcess},
		{"PIDs lists every descendant", pids},
		{"Kill ends every descendant", killDescendants},
		{"Kill without a process", killNothing},
		{"Kill while Start is under way", killDuringStart},
		{"Destroy without Start", destroyUnstarted},
		{"ten at once", tenAtOnce},
		{"commands of several callers", commandsAtOnce},
	}
}

func exitStatus(b *bench) {
	if r := b.run(b.sh("echo up; exit 42")); r.text != "up\n" || r.status.ExitStatus() != 42 {
		b.t.Errorf("status %#x, output %q", r.status, r.text)
	}
	if r := b.run(b.sh("kill -KILL $$")); r.status.Signal() != syscall.SIGKILL {
		b.t.Errorf("status %#x of an app that SIGKILL has ended", r.status)
	}
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	if r := a.exec(command("sh", "-c", "exit 7")); r.status.ExitStatus() != 7 {
		b.t.Errorf("status %#x of a command", r.status)
	}
	if r := a.exec(command("sh", "-c", "kill -TERM $$")); r.status.Signal() != syscall.SIGTERM {
		b.t.Errorf("status %#x of a command that SIGTERM has ended", r.status)
	}
}

func wantExitCodes(b *bench, codes map[string]int) {
	b.write("bin/plain", "text")
	b.write("bin/junk", "\x7fELFjunk")
	b.write("bin/script", "#!/no/such/interpreter\n")
	for _, name := range []string{"junk", "script"} {
		must(b.t, os.Chmod(filepath.Join(b.root, "bin", name), 0o755))
	}
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	for program, code := range codes {
		_, err := b.try(b.spec(program), spec.Stdio{})
		b.wantExecError("start", program, code, err)
		_, err = a.tryExec(command(program), spec.Stdio{})
		b.wantExecError("run", program, code, err)
	}
}

func (b *bench) wantExecError(how, program string, code int, err error) {
	b.t.Helper()
	var exec *spec.ExecError
	if !errors.As(err, &exec) || exec.ExitCode() != code || exec.Path != program {
		b.t.Errorf("%s %s: error %v, want one of exit code %d", how, program, err, code)
	}
}

func wantFound(b *bench, program string, env ...string) {
	must(b.t, os.MkdirAll(filepath.Join(b.root, "here"), 0o755))
	b.copy("/bin/busybox", "here/pwd")
	s := b.spec(program)
	s.Process.Env, s.Process.Dir = env, "/here"
	b.wantRun(s, "/here\n")
}

func noSuchUser(b *bench) {
	wantNamedErrors(b, map[string]func(*spec.Process){
		"nobody-here": func(p *spec.Process) { p.User = "nobody-here" },
		"4294967295":  func(p *spec.Process) { p.User = "4294967295" },
		"-1":          func(p *spec.Process) { p.User = "-1" },
		"0x10":        func(p *spec.Process) { p.User = "0x10" },
		" 5":          func(p *spec.Process) { p.User = " 5" },
		"nogroup":     func(p *spec.Process) { p.Group = "nogroup" },
		"/nosuchfile": func(p *spec.Process) { p.User = "/nosuchfile" },
	})
}

func noSuchDirectory(b *bench) {
	wantNamedErrors(b, map[string]func(*spec.Process){"/nosuchdir": func(p *spec.Process) { p.Dir = "/nosuchdir" }})
}

// wantNamedErrors checks the errors of processes with a value that is not accepted.
func wantNamedErrors(b *bench, changes map[string]func(*spec.Process)) {
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	for value, change := range changes {
		s := b.spec("true")
		change(&s.Process)
		_, err := b.try(s, spec.Stdio{})
		b.wantNamed("start", value, err)
		cmd := command("true")
		cmd.User, cmd.Group, cmd.Dir = s.Process.User, s.Process.Group, s.Process.Dir
		_, err = a.tryExec(cmd, spec.Stdio{})
		b.wantNamed("run", value, err)
	}
}

func (b *bench) wantNamed(how, value string, err error) {
	b.t.Helper()
	var exec *spec.ExecError
	if err == nil || errors.As(err, &exec) || !strings.Contains(err.Error(), value) || strings.Contains(err.Error(), "\n") {
		b.t.Errorf("%s with %s: error %v", how, value, err)
	}
}

func onlyTheProcess(b *bench) {
	before := children(os.Getpid())
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	cmd, err := a.tryExec(command("sleep", "1000"), spec.Stdio{})
	must(b.t, err)
	want := []int{a.main.PID(), cmd.PID()}
	slices.Sort(want)
	b.eventually("the main process and the command are the only children", func() bool {
		now := children(os.Getpid(), parent(want[0]), parent(want[1]))
		return slices.Equal(slices.DeleteFunc(now, func(pid int) bool { return slices.Contains(before, pid) }), want)
	})
}

// parent returns the process's parent.
func parent(pid int) int {
	stat, err := procstat.Read(pid)
	if err != nil {
		return -1
	}
	return stat.Parent
}

// children returns the processes whose parents have these numbers, but for these, sorted.
func children(parents ...int) []int {
	var out []int
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if slices.Contains(parents, parent(pid)) && !slices.Contains(parents, pid) {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// family is a script that starts descendants that stay, one of them in a new session.
const family = "sleep 1000 & setsid sleep 1000 & echo up; exec sleep 1000"

// startFamily starts two families, one of a command, and returns when both are complete.
func startFamily(b *bench) *app {
	b.t.Helper()
	a := b.start(b.sh(family+" >/dev/null"), spec.Stdio{})
	_, err := a.tryExec(command("sh", "-c", family), spec.Stdio{})
	must(b.t, err)
	b.eventually("six processes", func() bool {
		pids, err := a.c.PIDs()
		must(b.t, err)
		return len(pids) == 6
	})
	return a
}

func pids(b *bench) {
	a := startFamily(b)
	numbers, err := a.c.PIDs()
	must(b.t, err)
	if !slices.Contains(numbers, a.main.PID()) {
		b.t.Errorf("the main process %d is not in %d", a.main.PID(), numbers)
	}
	for _, pid := range numbers {
		if err := unix.Kill(pid, 0); err != nil {
			b.t.Errorf("%d is not a process here: %v", pid, err)
		}
	}
}

func killDescendants(b *bench) {
	a := startFamily(b)
	must(b.t, a.kill())
	if status, err := wait(a.main); err != nil || status.Signal() != syscall.SIGKILL {
		b.t.Errorf("status %#x, %v", status, err)
	}
	must(b.t, a.c.Kill()) // the main process has ended
}

func killNothing(b *bench) {
	c, err := b.container(b.spec("true"))
	must(b.t, err)
	must(b.t, c.Kill())
	must(b.t, c.Destroy())
}

func killDuringStart(b *bench) {
	s := b.spec("sleep", "1000")
	c, err := b.container(s)
	must(b.t, err)
	started := make(chan struct{})
	var killing sync.WaitGroup
	var killed error
	killing.Go(func() {
		for killed == nil {
			select {
			case <-started:
				return
			default:
				killed = c.Kill()
			}
		}
	})
	main, err := c.Start(spec.Stdio{})
	close(started)
	killing.Wait()
	must(b.t, killed)
	if err == nil {
		must(b.t, (&app{b: b, c: c, main: main}).kill())
		_, err := wait(main)
		must(b.t, err)
	}
	if left := processesIn(s.Cgroup); len(left) > 0 {
		b.t.Errorf("processes %q are left", left)
	}
	must(b.t, c.Destroy())
}

func destroyUnstarted(b *bench) {
	s := b.spec("true")
	c, err := b.container(s)
	must(b.t, err)
	b.wantNoCgroup(s.Cgroup)
	must(b.t, c.Destroy())
	b.wantNoCgroup(s.Cgroup)
}

func tenAtOnce(b *bench) {
	errs := make([]error, 10)
	var all sync.WaitGroup
	for i := range errs {
		s := b.spec("echo", strconv.Itoa(i))
		all.Go(func() {
			r, err := b.tryRun(s)
			if err == nil && r.text != strconv.Itoa(i)+"\n" {
				err = fmt.Errorf("app %d writes %q", i, r.text)
			}
			errs[i] = err
		})
	}
	all.Wait()
	must(b.t, errors.Join(errs...))
}

func commandsAtOnce(b *bench) {
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	errs := make([]error, 5)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			r, err := collect(func(stdio spec.Stdio) (spec.Running, error) {
				return a.tryExec(command("echo", strconv.Itoa(i)), stdio)
			})
			if err == nil && r.text != strconv.Itoa(i)+"\n" {
				err = fmt.Errorf("command %d writes %q", i, r.text)
			}
			errs[i] = err
		})
	}
	all.Wait()
	must(b.t, errors.Join(errs...))
}
