package goinit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// playVariable says what a supervisor does, see plays.
const playVariable = "GOINIT_TEST_PLAY"

// killsPod is what init says to stderr where it kills the pod.
const killsPod = "init kills the pod"

// TestMain is also the stager, in all its parts. The supervisor does what a test wants.
func TestMain(m *testing.M) {
	switch role := os.Getenv(names.RoleVariable); {
	case role == roleInit:
		exit(0, Live(func() error { fmt.Fprintln(os.Stderr, killsPod); return nil }))
	case role == roleSupervisor:
		supervise()
	case filepath.Base(os.Args[0]) == names.Program:
		exit(1, becomeSupervisor())
	case os.Getenv(playVariable) == attacker:
		attack()
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

func exit(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// underTest is a stager under test, whose daemon is the test.
type underTest struct {
	*exec.Cmd
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Reader
	errs  *bufio.Reader // its stderr
	ready *os.File      // the read end
}

// start starts a stager in a chroot. Its supervisor plays that.
func start(t *testing.T, play string) *underTest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	t.Cleanup(cancel)
	s := &underTest{Cmd: daemon.Chroot(ctx, t.TempDir(), stagerProgram(t)), t: t}
	s.Env = append(s.Env, playVariable+"="+play)
	in, err := s.StdinPipe()
	must(t, err)
	out, stdout := pipe(t)
	errs, stderr := pipe(t)
	ready, ours := pipe(t)
	s.in, s.out, s.errs, s.ready = in, bufio.NewReader(out), bufio.NewReader(errs), ready
	other, err := os.Open(os.DevNull)
	must(t, err)
	defer other.Close()
	s.Stdout, s.Stderr, s.ExtraFiles = stdout, stderr, []*os.File{ours, other}
	must(t, s.Start())
	must(t, errors.Join(stdout.Close(), stderr.Close(), ours.Close()))
	t.Cleanup(func() { _, _ = s.Process.Kill(), s.Wait() })
	return s
}

// says returns what the stager writes to stderr, until its end.
func (s *underTest) says() string {
	s.t.Helper()
	text, err := io.ReadAll(s.errs)
	must(s.t, err)
	return string(text)
}

// stagerProgram returns this program by the stager's name.
func stagerProgram(t *testing.T) string {
	t.Helper()
	own, err := os.Executable()
	must(t, err)
	path := filepath.Join(t.TempDir(), names.Program)
	must(t, os.Symlink(own, path))
	return path
}

// pipe returns the ends of a pipe whose reads have a limit.
func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { _ = read.Close() })
	must(t, read.SetReadDeadline(time.Now().Add(surroundings.Patience)))
	return read, write
}

// hears returns the supervisor's next line, which begins with what is expected, without that.
func (s *underTest) hears(want string) string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), want)
	if err != nil || !found {
		_ = s.Process.Kill()
		s.t.Fatalf("the supervisor says %q, %v, want %q; its errors:\n%s", line, err, want, s.says())
	}
	return strings.TrimSpace(rest)
}

// isSilent checks that nothing has the supervisor's stdout any more.
func (s *underTest) isSilent() {
	s.t.Helper()
	if rest, err := io.ReadAll(s.out); err != nil || len(rest) > 0 {
		s.t.Errorf("the supervisor, or what it has started, is still there: %q, %v", rest, err)
	}
}

// ends checks the exit code.
func (s *underTest) ends(want int) {
	s.t.Helper()
	_ = s.Wait() // the state has the outcome
	if code := s.ProcessState.ExitCode(); code != want {
		s.t.Errorf("exit code %d, want %d:\n%s", code, want, s.says())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheStagerEndsAsItsSupervisorDoes(t *testing.T) {
	for play, code := range map[string]int{"exit": 7, "exit in the host's PIDs": 7, "fail": 1} {
		t.Run(play, func(t *testing.T) { start(t, play).ends(code) })
	}
}

// The daemon sees the end of the ready pipe when the pod is up.
func TestTheReadyPipeIsOpenUntilThePodIsUp(t *testing.T) {
	s := start(t, "ready")
	s.hears("closed")
	s.isNotReady()
	must(t, s.in.Close())
	s.hears("up")
	s.isReady()
	s.ends(0)
}

// When the pod never is, the daemon sees the stager's end first, although init has lost the supervisor before.
func TestTheReadyPipeOutlivesASupervisorThatFails(t *testing.T) {
	for _, play := range []string{"lose init", "lose init in the host's PIDs", "give up"} {
		s := start(t, play)
		s.hears("closed")
		s.isNotReady()
		must(t, s.in.Close())
		s.isReady()
		var info unix.Siginfo
		must(t, unix.Waitid(unix.P_PID, s.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil))
		if info.Signo == 0 {
			t.Error("the ready pipe has ended before the stager")
		}
	}
}

func (s *underTest) isNotReady() {
	s.t.Helper()
	must(s.t, s.ready.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := s.ready.Read(make([]byte, 1)); !os.IsTimeout(err) {
		s.t.Errorf("before the pod is up the ready pipe says %v", err)
	}
	must(s.t, s.ready.SetReadDeadline(time.Now().Add(surroundings.Patience)))
}

func (s *underTest) isReady() {
	s.t.Helper()
	if _, err := s.ready.Read(make([]byte, 1)); err != io.EOF {
		s.t.Errorf("when the pod is up the ready pipe says %v", err)
	}
}

func TestTheDaemonsSignalsReachTheSupervisor(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
		s := start(t, "stop")
		s.hears("up")
		must(t, s.Process.Signal(sig))
		s.hears("stop")
		s.ends(0)
	}
}

// A killed supervisor takes the pod with it, also where init is stopped, or an app locks one of the supervisor's pipes
// for ever: the supervisor itself does not end then.
func TestNoAppOutlivesTheSupervisor(t *testing.T) {
	const locks = "app that locks a pipe"
	for name, play := range map[string]string{"app": "app", "stopped init": "app", locks: locks} {
		t.Run(name, func(t *testing.T) {
			for range 5 { // the threads end in any order
				s := start(t, play)
				pid := s.hears("up")
				s.isReady() // init has taken the order that the pod is up
				if name == "stopped init" {
					signal(t, pid, unix.SIGSTOP)
				}
				must(t, s.Process.Kill())
				s.isSilent()
			}
		})
	}
}

// In the host's PID namespace init kills the pod, by the runtime, however the supervisor ends.
func TestInitKillsAPodInTheHostsPIDs(t *testing.T) {
	for play, kills := range map[string]bool{"stop in the host's PIDs": true, "stop": false} {
		s := start(t, play)
		s.hears("up")
		must(t, s.Process.Kill())
		if said := s.says(); strings.Contains(said, killsPod) != kills {
			t.Errorf("%s: init says %q", play, said)
		}
	}
}

// An app that locks one of the supervisor's pipes, so that the supervisor does not end, does not hold init up.
func TestInitKillsAPodInTheHostsPIDsThatHoldsTheSupervisor(t *testing.T) {
	for range 5 { // the threads end in any order
		s := start(t, "app that locks a pipe in the host's PIDs")
		app := s.hears("up")
		s.isReady() // init has taken the order that the pod is up
		must(t, s.Process.Kill())
		line, err := s.errs.ReadString('\n')
		signal(t, app, unix.SIGKILL)
		if line != killsPod+"\n" {
			t.Errorf("init says %q, %v", line, err)
		}
		s.isSilent()
	}
}

func TestTheSupervisorLearnsOfInitsEnd(t *testing.T) {
	s := start(t, "wait for init")
	signal(t, s.hears("up"), unix.SIGKILL)
	s.hears("lost")
	s.hears("the number is init's")
	s.ends(0)
}

// Processes of the pod whose parents have ended are init's, and do not stay as zombies.
func TestInitCollectsOrphans(t *testing.T) {
	s := start(t, "orphans")
	pid := s.hears("up")
	s.hears("orphans are made")
	list := fmt.Sprintf("/proc/%s/task/%[1]s/children", pid)
	none := func() bool { text, err := os.ReadFile(list); return err == nil && len(text) == 0 }
	if !poll.Until(surroundings.Patience, time.Millisecond, none) {
		text, err := os.ReadFile(list)
		t.Errorf("init has the children %s, %v", text, err)
	}
	must(t, s.in.Close())
	s.ends(0)
}

// An app of user 0 with all capabilities can signal init in every way, and cannot reach anything by its process.
func TestNoAppHarmsInit(t *testing.T) {
	s := start(t, "attack")
	s.hears("up")
	s.hears("signals are sent")
	s.hears("root is its own /proc")
	s.hears("init lives")
	s.ends(0)
}

// Init has no privileges, few descriptors and no mounts but /proc; in the host's PID namespace it has what it needs to
// kill.
func TestInitKeepsWhatItNeeds(t *testing.T) {
	for play, want := range map[string]string{
		"state":                    "uid 65534, capabilities 0000000000000000, 1 mounts",
		"state in the host's PIDs": "uid 0,",
	} {
		s := start(t, play)
		pid := s.hears("up")
		s.isReady() // init has taken the order that the pod is up
		status, err := os.ReadFile("/proc/" + pid + "/status")
		must(t, err)
		mounts, err := os.ReadFile("/proc/" + pid + "/mountinfo")
		must(t, err)
		uid, effective := field(string(status), "Uid"), field(string(status), "CapEff")
		state := fmt.Sprintf("uid %s, capabilities %s, %d mounts", uid, effective, strings.Count(string(mounts), "\n"))
		if !strings.HasPrefix(state, want) {
			t.Errorf("%s: %s, want %s", play, state, want)
		}
		files, err := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, file := range files {
			target, _ := os.Readlink(file)
			if !strings.HasPrefix(target, "pipe:") && target != "anon_inode:[pidfd]" {
				t.Errorf("%s: init has %s open", play, target)
			}
		}
		if err != nil || len(files) == 0 || len(files) > 3 { // the ready pipe and init's second pipe are closed
			t.Errorf("%s: init has %d descriptors, %v", play, len(files), err)
		}
		must(t, s.in.Close())
		s.ends(0)
	}
}

func signal(t *testing.T, process string, sig unix.Signal) {
	t.Helper()
	pid, err := strconv.Atoi(process)
	must(t, err)
	must(t, unix.Kill(pid, sig))
}

func field(status, name string) string {
	_, rest, _ := strings.Cut(status, "\n"+name+":\t")
	value, _, _ := strings.Cut(rest, "\n")
	value, _, _ = strings.Cut(value, "\t")
	return value
}

// The supervisor's threads are in the stager's root, with the umask of a stager, and cannot leave it, also on a host
// that runs from its initial RAM disk, where pivot_root(2) fails; no mount of a shared volume goes with the host's root.
func TestTheSupervisorsRootIsTheStagers(t *testing.T) {
	for name, chroot := range map[string]func(ctx context.Context, folder, program string) *exec.Cmd{
		"host": daemon.Chroot, "host on its initial RAM disk": daemon.ChrootOnRAMDisk, "host that shares a volume": daemon.ChrootWithVolume,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := chroot(ctx, t.TempDir(), stagerProgram(t))
			cmd.Env = append(cmd.Env, playVariable+"=leave")
			defer unix.Umask(unix.Umask(0o077))
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}
		})
	}
}
