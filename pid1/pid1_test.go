package pid1

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/surroundings"
)

// roleVariable says what a stager does, namespacesVariable which namespaces its pod has.
const (
	roleVariable       = "PID1_TEST_ROLE"
	namespacesVariable = "PID1_TEST_NAMESPACES"
)

// inheritedPipe is a stager's descriptor of a pipe, where the test passes one.
const inheritedPipe = 4

// ownPID and hostPID are a pod's namespaces.
const (
	ownPID  = unix.CLONE_NEWPID
	hostPID = 0
)

// TestMain is also a stager, if it is called by the stager's name.
func TestMain(m *testing.M) {
	own, err := Take()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case own != nil:
		play(own, os.Getenv(roleVariable))
	case os.Getenv(failsVariable) != "":
		becomeFailing()
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

// play is a stager. It ends the process.
func play(own *Init, role string) {
	if role == "leave root" {
		if err := own.Begin(ownPID, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		leaveRoot()
	}
	if role == "early" {
		os.Exit(3)
	}
	namespaces, err := strconv.ParseUint(os.Getenv(namespacesVariable), 10, 64)
	ready := os.NewFile(3, "ready")
	if err == nil {
		err = own.Begin(uintptr(namespaces), ready)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, names.Program+":", err)
		os.Exit(1)
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)
	if role == "ready" || role == "ready, killed" {
		_ = ready.Close()
		say("closed")
		await()
	}
	if role == "ready, killed" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if err := own.Up(); err != nil {
		say(err.Error())
	}
	_ = ready.Close()
	say("up")
	switch role {
	case "exit":
		_ = own.Close()
		os.Exit(7)
	case "stop":
		<-stops
		say("stop")
	case "lost":
		say(strconv.Itoa(own.PID()))
		<-own.Lost()
		say("lost")
	case "state":
		sayState(own)
	case "mount":
		if err := unix.Mount("inside", "/mnt", "tmpfs", 0, ""); err != nil {
			say(err.Error())
		}
		say("mounted")
		await()
		text, _ := os.ReadFile("/proc/thread-self/mountinfo")
		fmt.Fprintf(os.Stdout, "%q\n", text)
	case "starts":
		startThree(own)
	case "deaf":
		fill(own)
		fallthrough
	case "high":
		if err := unix.Dup3(inheritedPipe, 500, unix.O_CLOEXEC); err != nil { // the kernel releases it first
			say(err.Error())
		}
		fallthrough
	default:
		say(strconv.Itoa(own.PID()))
		await()
	}
	_ = own.Close()
	os.Exit(0)
}

// startThree says how three starts end: one whose first packet cannot be sent, one whose second cannot, and one with a
// plan that is empty.
func startThree(own *Init) {
	closed, usable := os.NewFile(1<<20, "closed"), os.Stdin
	many := append(slices.Repeat([]*os.File{usable}, 300), closed)
	for _, files := range [][]*os.File{{closed}, many, {usable}} {
		_, err := own.Start(nil, files, nil)
		say(fmt.Sprint(err))
	}
}

// fill sends starts, and takes no answers, until init cannot send any more and takes none either.
func fill(own *Init) {
	const start, size = 2, 32 // of struct init_message
	m := append(binary.NativeEndian.AppendUint32(nil, start), make([]byte, size-4)...)
	for err := error(nil); err == nil; _, err = own.channel.Write(m) {
		_ = own.channel.SetWriteDeadline(time.Now().Add(time.Second))
	}
}

// leaveRoot ends the process, with 7 if it cannot leave the stager's root, and sees the volume if there is one.
func leaveRoot() {
	volume, err := daemon.HasVolume()
	if !volume {
		err = daemon.LeaveChroot()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(7)
}

// sayState prints what the supervisor has inherited, and what init has.
func sayState(own *Init) {
	status, _ := os.ReadFile("/proc/self/status") // the kernel always has it
	dir, err := os.Getwd()
	fmt.Fprintf(os.Stdout, "%s\ndirectory: %s %v\numask: %o\n", status, dir, err, unix.Umask(0))
	fmt.Fprintf(os.Stdout, "descriptors of folders: %v\n", openFolders())
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", own.PID()))
	for line := range strings.Lines(string(mounts)) {
		say("init's mount: " + strings.Fields(line)[1])
	}
	descriptors, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", own.PID()))
	say(fmt.Sprint("few descriptors: ", len(descriptors) > 0 && len(descriptors) <= 6))
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", own.PID()))
	say(fmt.Sprint("init's threads: ", len(tasks)))
}

// openFolders returns the descriptors of folders that this process has.
func openFolders() (found []int) {
	for fd := range 2048 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			found = append(found, fd)
		}
	}
	return found
}

func say(line string) { fmt.Fprintln(os.Stdout, line) }

// await waits for a byte of the test, or the end of its pipe.
func await() { _, _ = os.Stdin.Read(make([]byte, 1)) }

// stager is a stager under test.
type stager struct {
	*exec.Cmd
	t     *testing.T
	in    io.WriteCloser
	out   *bufio.Reader
	ready *os.File // the read end, which the test has
}

// start starts a stager in a chroot, after a shell has executed setup, by the command of the variable wrap if setup
// sets it.
func start(t *testing.T, role string, namespaces uintptr, setup string, more ...*os.File) *stager {
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
	s := &stager{Cmd: daemon.Chroot(ctx, t.TempDir(), script), t: t}
	s.Env = append(s.Env, roleVariable+"="+role, fmt.Sprintf("%s=%d", namespacesVariable, namespaces))
	s.Stderr = os.Stderr
	if s.in, err = s.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe() // not StdoutPipe, which Wait closes
	if err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.out = write, bufio.NewReader(read)
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.ready, s.ExtraFiles = readyRead, append([]*os.File{readyWrite}, more...)
	t.Cleanup(func() { _, _ = read.Close(), readyRead.Close() })
	err = s.Start()
	_, _ = write.Close(), readyWrite.Close()
	if err == nil {
		err = read.SetReadDeadline(time.Now().Add(surroundings.Patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Process.Kill(), s.Wait() })
	return s
}

// line returns the supervisor's next line.
func (s *stager) line() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("the supervisor says %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// says checks the supervisor's next lines.
func (s *stager) says(lines ...string) {
	s.t.Helper()
	for _, want := range lines {
		if line := s.line(); line != want {
			s.t.Fatalf("the supervisor says %q, want %q", line, want)
		}
	}
}

// ends checks the exit code, -1 for a signal.
func (s *stager) ends(want int) {
	s.t.Helper()
	_ = s.Wait() // the state has the outcome
	if code := s.ProcessState.ExitCode(); code != want {
		s.t.Errorf("exit code %d, want %d", code, want)
	}
}

func (s *stager) signal(sig unix.Signal) {
	s.t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// isGone checks that a process ends.
func isGone(t *testing.T, pid int) {
	t.Helper()
	surroundings.Eventually(t, "the init is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // whoever adopts it collects it
	})
}

// ignoring is a setup by which the stager starts with signals ignored; a shell's trap cannot ignore SIGCHLD.
const ignoring = "wrap='env --ignore-signal=TERM,INT,QUIT,CHLD,PIPE'"

func TestAStagerEndsWithItsCode(t *testing.T) {
	for _, setup := range []string{"", ignoring} {
		start(t, "early", ownPID, setup).ends(3)
		for _, namespaces := range []uintptr{ownPID, hostPID, ownPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS} {
			start(t, "exit", namespaces, setup).ends(7)
		}
	}
}

// The daemon's signals arrive, whatever the daemon ignores.
func TestTheDaemonsSignalsStopThePod(t *testing.T) {
	for _, setup := range []string{"", ignoring} {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT} {
			s := start(t, "stop", ownPID, setup)
			s.says("up")
			s.signal(sig)
			s.says("stop")
			s.ends(0)
		}
	}
}

// The daemon does not see the ready pipe's end before the pod is up, or the stager has ended.
func TestInitKeepsTheReadyPipe(t *testing.T) {
	closed := func(s *stager, limit time.Duration) error {
		if err := s.ready.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		_, err := s.ready.Read(make([]byte, 1))
		return err
	}
	const moment = 100 * time.Millisecond
	s := start(t, "ready", ownPID, "")
	s.says("closed")
	if err := closed(s, moment); !os.IsTimeout(err) {
		t.Errorf("before the pod is up the ready pipe says %v", err)
	}
	_, _ = s.in.Write([]byte{1})
	s.says("up")
	if err := closed(s, surroundings.Patience); !errors.Is(err, io.EOF) {
		t.Errorf("when the pod is up the ready pipe says %v", err)
	}
	_ = s.in.Close()
	s.ends(0)
	for _, namespaces := range []uintptr{ownPID, hostPID} {
		s = start(t, "ready, killed", namespaces, "")
		s.says("closed")
		_, _ = s.in.Write([]byte{1})
		if err := closed(s, surroundings.Patience); !errors.Is(err, io.EOF) {
			t.Errorf("after the kill the ready pipe says %v", err)
		}
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, s.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo == 0 {
			t.Errorf("at the ready pipe's end the stager has not ended: %v", err)
		}
		s.ends(-1)
	}
}

// init ends with the supervisor, also one that the host has stopped, and the supervisor learns of its end.
func TestInitAndSupervisorEndWithEachOther(t *testing.T) {
	for _, namespaces := range []uintptr{ownPID, hostPID} {
		s := start(t, "wait", namespaces, "")
		s.says("up")
		init, _ := strconv.Atoi(s.line())
		s.signal(unix.SIGKILL)
		isGone(t, init)

		s = start(t, "lost", namespaces, "")
		s.says("up")
		init, _ = strconv.Atoi(s.line())
		if err := unix.Kill(init, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.says("lost")
		s.ends(0)
	}
	s := start(t, "wait", ownPID, "")
	s.says("up")
	init, _ := strconv.Atoi(s.line())
	if _, err := s.ready.Read(make([]byte, 1)); err != io.EOF { // init knows that the pod is up
		t.Fatal(err)
	}
	if err := unix.Kill(init, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.signal(unix.SIGKILL)
	isGone(t, init)
}

// A start that cannot be sent takes no other's answer.
func TestAStartThatIsNotSentTakesNoAnswer(t *testing.T) {
	s := start(t, "starts", ownPID, "")
	s.says("up", "ask init: write unixpacket @: sendmsg: bad file descriptor", "ask init: write unixpacket @: sendmsg: bad file descriptor", "mmap: invalid argument")
	s.ends(0)
}

// init ends with a supervisor that cannot end: the kernel waits for a pipe that another process has locked, whether it
// releases the channel before that or not, and whether init waits for it to read or not.
func TestInitEndsWithASupervisorThatCannotEnd(t *testing.T) {
	for _, role := range []string{"wait", "high", "deaf"} {
		for _, namespaces := range []uintptr{ownPID, hostPID} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, role, namespaces, "", r)
			_ = r.Close() // the supervisor has the last
			s.says("up")
			init, _ := strconv.Atoi(s.line())
			idle := exec.CommandContext(t.Context(), "/bin/busybox", "cat", "/dev/ptmx") // copies by sendfile(2)
			idle.Stdout = w
			if err := idle.Start(); err != nil {
				t.Fatal(err)
			}
			surroundings.Eventually(t, "the pipe is locked", func() bool {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", idle.Process.Pid)) // nothing of a running process
				return strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_SENDFILE))
			})
			s.signal(unix.SIGKILL)
			isGone(t, init)
			var info unix.Siginfo
			if err := unix.Waitid(unix.P_PID, s.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo != 0 {
				t.Errorf("%s, namespaces %#x: the supervisor does not wait for the pipe: signal %d, %v", role, namespaces, info.Signo, err)
			}
			_, _ = idle.Process.Kill(), idle.Wait()
			_ = w.Close()
			s.ends(-1)
		}
	}
}

// The supervisor starts in the root, with the umask 022; init has two mounts, few descriptors and one thread.
func TestWhatTheSupervisorAndInitBeginWith(t *testing.T) {
	s := start(t, "state", ownPID, "cd /usr; umask 077; trap '' USR1; exec 6>&1 7>&1 8>&1 9>&1")
	text, err := io.ReadAll(s.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\ndirectory: / <nil>\n", "\numask: 22\n", "\ninit's mount: /\ninit's mount: /proc\n", "\nfew descriptors: true\ninit's threads: 1\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the state lacks %q:\n%s", want, text)
		}
	}
	s.ends(0)
}

// The supervisor's mounts are its own, and it sees the daemon's later ones.
func TestTheSupervisorsMountsAreItsOwn(t *testing.T) {
	s := start(t, "mount", ownPID, "mount --make-rshared /; mkdir -p /tmp/outside; mount --bind / /tmp/outside")
	s.says("up", "mounted")
	in := fmt.Sprintf("--mount=/proc/%d/ns/mnt", os.Getpid())
	if out, err := exec.Command("nsenter", in, "grep", "inside", "/proc/self/mountinfo").CombinedOutput(); err == nil {
		t.Errorf("the supervisor's mount is the test's: %s", out)
	}
	_, _ = s.in.Write([]byte{1})
	if line := s.line(); !strings.Contains(line, " inside ") {
		t.Errorf("the supervisor's mounts are %s", line)
	}
	s.ends(0)
}

// The supervisor cannot leave the chroot into which the daemon has put the stager, also on a host that runs from its
// initial RAM disk, where pivot_root(2) fails, and no mount of a shared volume goes with the host's root.
func TestTheSupervisorsRootIsTheStagers(t *testing.T) {
	for name, chroot := range map[string]func(ctx context.Context, folder, program string) *exec.Cmd{
		"host": daemon.Chroot, "host on its initial RAM disk": daemon.ChrootOnRAMDisk,
		"host that shares a volume": daemon.ChrootWithVolume,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
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
			cmd.Env = append(cmd.Env, roleVariable+"=leave root")
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}
		})
	}
}

// The calls that Missing tries are there, and each is refused for its arguments.
func TestNothingIsMissingHere(t *testing.T) {
	if err := Missing(); err != nil {
		t.Error(err)
	}
}
