package waiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/firstprocess"
	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// failsVariable has the call that fails in the waiter, as JSON; cgroupVariable is set if its cgroup of version 2 is all
// that is mounted; manifestVariable has the manifest's text, where there is one.
const (
	failsVariable    = "WAITER_TEST_FAILS"
	cgroupVariable   = "WAITER_TEST_CGROUP"
	manifestVariable = "WAITER_TEST_MANIFEST"
)

// becomeFailing becomes the waiter, whose system call fails, and so it does in the supervisor and in guards.
func becomeFailing() {
	runtime.LockOSThread() // the thread that has the filter executes the waiter
	var fails failing.Call
	err := json.Unmarshal([]byte(os.Getenv(failsVariable)), &fails)
	program, pathErr := os.Readlink("/proc/self/exe")
	err = errors.Join(err, pathErr)
	if err == nil && os.Getenv(cgroupVariable) != "" {
		err = errors.Join(unix.Unshare(unix.CLONE_NEWCGROUP), unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""))
	}
	if text, ok := os.LookupEnv(manifestVariable); ok && err == nil {
		err = enterRootWithManifest(text)
	}
	if err == nil && fails.Number != 0 {
		err = errors.Join(openAboveLimit(), fails.Fail())
	}
	if err == nil {
		err = unix.Exec(program, []string{names.Program}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// enterRootWithManifest makes a root of this process's own, with the host's folders and a manifest, and enters it.
func enterRootWithManifest(text string) error {
	const root = "/mnt/root" // in a file system of daemon.Chroot's
	entries, err := os.ReadDir("/")
	if err := errors.Join(err, os.MkdirAll(root, 0o755)); err != nil {
		return err
	}
	for _, e := range entries {
		from, to := "/"+e.Name(), filepath.Join(root, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			link, err := os.Readlink(from)
			if err := errors.Join(err, os.Symlink(link, to)); err != nil {
				return err
			}
		case e.IsDir() && from != "/mnt":
			if err := errors.Join(os.MkdirAll(to, 0o755), unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.WriteFile(root+names.Manifest, []byte(text), 0o600), unix.Chroot(root), unix.Chdir("/"))
}

// openAboveLimit passes the waiter a descriptor that is above the limit of open files.
func openAboveLimit() error {
	const number = 1000
	if err := unix.Dup3(2, number, 0); err != nil {
		return err
	}
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	limit.Cur = number / 2
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
}

// failingWaiter returns a command that runs a waiter in a chroot, with the variables, and a ready pipe as descriptor 3,
// whose other end it returns too. closeOurs closes the command's end.
func failingWaiter(t *testing.T, fails failing.Call, variables ...string) (cmd *exec.Cmd, ready *os.File, closeOurs func()) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "fails")
	if err := os.Symlink(own, program); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fails)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	t.Cleanup(cancel)
	ready, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ready.Close(), write.Close() })
	cmd = daemon.Chroot(ctx, t.TempDir(), program)
	cmd.Env = append(append(cmd.Env, failsVariable+"="+string(text)), variables...)
	cmd.ExtraFiles = []*os.File{write}
	return cmd, ready, func() { write.Close() }
}

// runFailing runs the command of failingWaiter to its end.
func runFailing(t *testing.T, fails failing.Call, variables ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd, _, _ := failingWaiter(t, fails, variables...)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	cmd.WaitDelay = 10 * time.Second // after the waiter's end, for what holds its output open
	_ = cmd.Run()                    // the state has the outcome
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}

func callOf(number uint32, args map[int]uint32) failing.Call {
	return failing.Call{Number: number, Args: args}
}

// A step that the kernel refuses ends the stager with a message that names it, before there is a pod: the
// supervisor would be where it must not be, or would survive its waiter.
func TestWaiterStopsWhereTheKernelRefuses(t *testing.T) {
	const own, host = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, 0
	for name, test := range map[string]struct {
		fails      failing.Call
		role       string
		namespaces uintptr
		message    string
	}{
		"nothing":                {callOf(0, nil), "exit", own, ""},
		"close_range":            {callOf(unix.SYS_CLOSE_RANGE, nil), "exit", own, ""},
		"readlink":               {callOf(sysReadlink, nil), "exit", own, "find own program"},
		"dup3 of the lifeline":   {callOf(unix.SYS_DUP3, map[int]uint32{1: 6}), "watch", own, "keep lifeline"},
		"subreaper":              {callOf(unix.SYS_PRCTL, map[int]uint32{0: unix.PR_SET_CHILD_SUBREAPER}), "exit", host, "become child subreaper"},
		"F_SETFD":                {callOf(unix.SYS_FCNTL, map[int]uint32{1: unix.F_SETFD}), "exit", own, "keep channel"},
		"F_DUPFD_CLOEXEC":        {callOf(unix.SYS_FCNTL, map[int]uint32{1: unix.F_DUPFD_CLOEXEC}), "exit", own, "make descriptor"},
		"socketpair":             {callOf(unix.SYS_SOCKETPAIR, nil), "exit", own, "make channel"},
		"clone":                  {callOf(unix.SYS_CLONE, map[int]uint32{0: own | uint32(unix.SIGCHLD)}), "exit", own, "fork"},
		"wait":                   {callOf(unix.SYS_WAIT4, nil), "early", own, "wait for supervisor"},
		"dup3 of the channel":    {callOf(unix.SYS_DUP3, map[int]uint32{1: 3}), "exit", own, "keep channel"},
		"dup3 of the signals":    {callOf(unix.SYS_DUP3, map[int]uint32{1: 4}), "exit", own, "keep channel"},
		"dup of the ready pipe":  {callOf(unix.SYS_FCNTL, map[int]uint32{0: 3, 1: unix.F_DUPFD_CLOEXEC, 2: 10}), "exit", own, "keep ready pipe"},
		"dup3 of the ready pipe": {callOf(unix.SYS_DUP3, map[int]uint32{1: 5}), "exit", own, "keep ready pipe"},
		"signalfd":               {callOf(unix.SYS_SIGNALFD4, nil), "exit", own, "make descriptor"},
		"poll":                   {callOf(sysPoll, nil), "exit", own, "poll"},
		"mount namespace":        {callOf(unix.SYS_UNSHARE, map[int]uint32{0: unix.CLONE_NEWNS}), "exit", own, "make mount namespace"},
		"setns":                  {callOf(unix.SYS_SETNS, nil), "exit", own, "leave chroot"},
		"slave mounts":           {callOf(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_SLAVE | unix.MS_REC}), "exit", own, "make mounts slaves of the stager's"},
		"fchdir":                 {callOf(unix.SYS_FCHDIR, nil), "exit", own, "find root"},
		"getcwd":                 {callOf(unix.SYS_GETCWD, nil), "exit", own, "find root"},
		"bind mount":             {callOf(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_BIND | unix.MS_REC}), "exit", own, "make root a mount point"},
		"chdir":                  {callOf(unix.SYS_CHDIR, nil), "exit", own, "make root a mount point"},
		"pivot_root":             {callOf(unix.SYS_PIVOT_ROOT, nil), "exit", own, "pivot root"},
		"umount":                 {callOf(unix.SYS_UMOUNT2, nil), "exit", own, "detach host's root"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, code := runFailing(t, test.fails, firstprocess.Environment(test.role, test.namespaces)...)
			want, line := 7, ""
			if test.message != "" {
				want, line = 1, names.Program+": "+test.message+": Operation not permitted\n"
			}
			if code != want || !strings.Contains(stderr, line) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q", code, want, stderr, line)
			}
		})
	}
}

// Where the manifest's text says which namespaces are the host's, the supervisor is started in the pod's at once: a fork
// into the namespaces of other pods, which fails here, is not tried. Otherwise the supervisor says it.
func TestTheFirstSupervisorIsInTheNamespacesOfTheManifest(t *testing.T) {
	const all = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	for manifest, test := range map[string]struct {
		namespaces uintptr
		guessed    bool
	}{
		`{"value":{"ipc":"host","pid":"host","uts":"host"}}`: {0, true},
		`{"value":{"ipc":"host","uts":"host"}}`:              {unix.CLONE_NEWPID, true},
		`{"value": {"ipc": "host", "uts": "host"}}`:          {unix.CLONE_NEWPID, false},
		`{"value":"{\"ipc\":\"host\"}"}`:                     {unix.CLONE_NEWPID, false},
		`{"value":{"uts":"host"}}`:                           {unix.CLONE_NEWPID | unix.CLONE_NEWIPC, true},
		"":                                                   {unix.CLONE_NEWPID, false},
	} {
		variables := append(firstprocess.Environment("exit", test.namespaces), manifestVariable+"="+manifest)
		_, stderr, code := runFailing(t, callOf(unix.SYS_CLONE, map[int]uint32{0: all | uint32(unix.SIGCHLD)}), variables...)
		if test.guessed != (code == 7) || test.guessed == strings.Contains(stderr, ": fork: ") {
			t.Errorf("%s: exit code %d, stderr %q", manifest, code, stderr)
		}
		if _, stderr, code = runFailing(t, failing.Call{}, variables...); code != 7 {
			t.Errorf("%s: exit code %d, stderr %q", manifest, code, stderr)
		}
	}
}

// A waiter whose supervisor ends, which may take a while, keeps no core busy meanwhile, and has closed what the daemon
// has passed, also on a kernel without close_range(2).
func TestWaiterWaitsForASupervisorThatEnds(t *testing.T) {
	for _, fails := range []failing.Call{{}, {Number: unix.SYS_CLOSE_RANGE}} {
		stdout, stderr, code := runFailing(t, fails, append(firstprocess.Environment("", 0)[1:], helperVariable+"=no more requests")...)
		if want := "the helper: <nil>\n"; stdout != want || code != 0 {
			t.Errorf("call %d fails: exit code %d; stdout %q, want %q; stderr %q", fails.Number, code, stdout, want, stderr)
		}
	}
}

// watchWaiter returns an error if the waiter does not wait, or has descriptors from before its start.
func watchWaiter() error {
	waits := func() bool {
		for range 100 {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getppid()))
			if err != nil || !strings.Contains(string(stat), ") S ") {
				return false
			}
		}
		return true
	}
	if !poll.Until(surroundings.Patience/2, time.Millisecond, waits) {
		return errors.New("the waiter does not wait")
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getppid()))
	if err == nil && len(open) > 8 {
		err = fmt.Errorf("descriptors %v are open", open)
	}
	return err
}

// A supervisor that is killed is told with the signal.
func TestAKilledSupervisorIsTold(t *testing.T) {
	_, stderr, code := runFailing(t, failing.Call{}, firstprocess.Environment("killed", 0)...)
	if want := names.Program + ": supervisor was ended by signal 9\n"; code != 1 || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

// Processes that even SIGKILL does not end, as one in uninterruptible sleep, cannot keep the stager from its end. Here
// the kernel refuses the waiter's kill(2).
func TestWaiterEndsBeforeProcessesThatSurvive(t *testing.T) {
	mark := "WAITER_TEST_MARK=" + t.TempDir()
	t.Cleanup(func() { killMarked(t, mark) })
	_, stderr, code := runFailing(t, callOf(unix.SYS_KILL, nil), append(firstprocess.Environment("orphans", 0), mark)...)
	if want := names.Program + ": processes survive SIGKILL\n"; code != 0 || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

// killMarked kills the processes that have a variable.
func killMarked(t *testing.T, mark string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || len(lists) == 0 {
		t.Errorf("%v: no process is listed", err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a gone one has none
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(list)))
		if err == nil && strings.Contains("\x00"+string(text), "\x00"+mark+"\x00") {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended just now
		}
	}
}
