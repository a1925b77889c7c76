package pid1

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
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// failsVariable has the call that fails in the stager, as JSON; cgroupVariable is set if its cgroup of version 2 is all
// that is mounted.
const (
	failsVariable  = "PID1_TEST_FAILS"
	cgroupVariable = "PID1_TEST_CGROUP"
)

// becomeFailing becomes a stager, whose system call fails.
func becomeFailing() {
	runtime.LockOSThread() // the thread that has the filter executes the stager
	var fails failing.Call
	err := json.Unmarshal([]byte(os.Getenv(failsVariable)), &fails)
	program, pathErr := os.Readlink("/proc/self/exe")
	err = errors.Join(err, pathErr)
	if err == nil && os.Getenv(cgroupVariable) != "" {
		err = errors.Join(unix.Unshare(unix.CLONE_NEWCGROUP), unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""))
	}
	if err == nil && fails.Number != 0 {
		err = fails.Fail()
	}
	if err == nil {
		err = unix.Exec(program, []string{names.Program}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// failingStager returns a command that runs a stager in a chroot.
func failingStager(t *testing.T, fails failing.Call, role string, namespaces uintptr, variables ...string) *exec.Cmd {
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
	_, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { write.Close() })
	cmd := daemon.Chroot(ctx, t.TempDir(), program)
	cmd.Env = append(append(cmd.Env, failsVariable+"="+string(text), roleVariable+"="+role, fmt.Sprintf("%s=%d", namespacesVariable, namespaces)), variables...)
	cmd.ExtraFiles = []*os.File{write}
	cmd.WaitDelay = 10 * time.Second // after the stager's end, for what holds its output open
	return cmd
}

// A step that the kernel refuses ends the stager with a message that names it: the supervisor or init would be where it
// must not be.
func TestAStagerStopsWhereTheKernelRefuses(t *testing.T) {
	call := func(number uint32, args map[int]uint32) failing.Call { return failing.Call{Number: number, Args: args} }
	const own = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	for name, test := range map[string]struct {
		fails      failing.Call
		namespaces uintptr
		message    string
	}{
		"nothing":         {call(0, nil), own, ""},
		"close_range":     {call(unix.SYS_CLOSE_RANGE, nil), own, ""},
		"socketpair":      {call(unix.SYS_SOCKETPAIR, nil), own, "make the lifeline"},
		"F_DUPFD_CLOEXEC": {call(unix.SYS_FCNTL, map[int]uint32{1: unix.F_DUPFD_CLOEXEC, 2: 10}), own, "make the lifeline"},
		"unshare files":   {call(unix.SYS_UNSHARE, map[int]uint32{0: unix.CLONE_FILES}), own, "make the lifeline"},
		"mount namespace": {call(unix.SYS_UNSHARE, map[int]uint32{0: unix.CLONE_NEWNS}), own, "make mount namespace"},
		"setns":           {call(unix.SYS_SETNS, nil), own, "leave chroot"},
		"slave mounts":    {call(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_SLAVE | unix.MS_REC}), own, "make mounts slaves of the stager's"},
		"fchdir":          {call(unix.SYS_FCHDIR, nil), own, "find root"},
		"getcwd":          {call(unix.SYS_GETCWD, nil), own, "find root"},
		"bind mount":      {call(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_BIND | unix.MS_REC}), own, "make root a mount point"},
		"chdir":           {call(unix.SYS_CHDIR, nil), own, "make root a mount point"},
		"pivot_root":      {call(unix.SYS_PIVOT_ROOT, nil), own, "pivot root"},
		"umount":          {call(unix.SYS_UMOUNT2, nil), own, "detach host's root"},
		"clone":           {call(unix.SYS_CLONE, map[int]uint32{0: own | unix.CLONE_PARENT | unix.CLONE_NEWNS | uint32(unix.SIGCHLD)}), own, "make the pod's init: clone"},
		"private mounts":  {call(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_PRIVATE | unix.MS_REC}), own, "make init's root"},
		"mkdir":           {call(unix.SYS_MKDIR, nil), own, "make init's root"},
		"setresgid":       {call(unix.SYS_SETRESGID, nil), own, "keep other processes from init's limits"},
		"dumpable":        {call(unix.SYS_PRCTL, map[int]uint32{0: unix.PR_SET_DUMPABLE}), own, "keep other processes from reading init"},
		"subreaper":       {call(unix.SYS_PRCTL, map[int]uint32{0: unix.PR_SET_CHILD_SUBREAPER}), hostPID, "become child subreaper"},
		"dup3":            {call(unix.SYS_DUP3, nil), own, "keep descriptor"},
		"signalfd":        {call(unix.SYS_SIGNALFD4, nil), own, "make signal descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, messages bytes.Buffer
			cmd := failingStager(t, test.fails, "exit", test.namespaces)
			cmd.Stdout, cmd.Stderr = &out, &messages
			if err := cmd.Run(); errors.Is(err, exec.ErrWaitDelay) { // of other errors the state has the outcome
				t.Error("a process of the stager is left")
			}
			want, line := 7, ""
			if test.message != "" {
				want, line = 1, names.Program+": "+test.message+": operation not permitted\n"
			}
			code, stderr := cmd.ProcessState.ExitCode(), strings.ReplaceAll(messages.String(), "Operation not", "operation not")
			if code != want || !strings.Contains(stderr, line) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q", code, want, stderr, line)
			}
		})
	}
}

// An init whose maker cannot tell its number does not begin, and the daemon is told so at once.
func TestAnInitThatIsNotAnnouncedIsAnError(t *testing.T) {
	var messages strings.Builder
	answers := map[int]uint32{2: unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT} // not the supervisor's messages
	cmd := failingStager(t, failing.Call{Number: unix.SYS_SENDMSG, Args: answers}, "exit", unix.CLONE_NEWPID)
	cmd.Stderr = &messages
	err := cmd.Run()
	const want = names.Program + ": make the pod's init: the process that makes it ended with exit status 1\n"
	if code := cmd.ProcessState.ExitCode(); code != 1 || messages.String() != want {
		t.Errorf("%v; stderr %q, want %q", err, messages.String(), want)
	}
}

func TestAnEndIsToldInWords(t *testing.T) {
	for status, want := range map[syscall.WaitStatus]string{0x100: "ended with exit status 1", 0x7f00: "ended with exit status 127", 9: "was killed by SIGKILL", 0x8b: "was killed by SIGSEGV"} {
		if got := ending(status); got != want {
			t.Errorf("%#x: %q, want %q", status, got, want)
		}
	}
}

// On a host that runs from its initial RAM disk, where pivot_root(2) is refused, the stager has its root as well, and no
// descriptor of the host's.
func TestAStagerHidesARootThatCannotBeMovedAway(t *testing.T) {
	var out, messages bytes.Buffer
	cmd := failingStager(t, failing.Call{Number: unix.SYS_PIVOT_ROOT, Errno: unix.EINVAL}, "state", unix.CLONE_NEWPID)
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	text := out.String()
	if err != nil || !strings.Contains(text, "\ndirectory: / <nil>\n") || !strings.Contains(text, "\ndescriptors of folders: []\n") {
		t.Errorf("%v: %s%s", err, text, &messages)
	}
}

// cgroupOfVersion2 makes a cgroup for a test, and returns its folder.
func cgroupOfVersion2(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("stager-test-pid1-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(t.TempDir())))
	if err := daemon.MakeCgroup(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.RemoveCgroup(name); err != nil {
			t.Error(err)
		}
	})
	mounts, err := daemon.Hierarchies()
	for _, mount := range mounts {
		dir := filepath.Join(mount, name)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil {
			return dir
		}
	}
	t.Fatal("no hierarchy of version 2 is mounted: ", err)
	return ""
}

// With cgroups of version 2 alone, neither the supervisor nor init stays in the cgroup that the daemon has made, which
// could not divide its resources among the apps. A stager that cannot leave it does not start.
func TestTheDaemonsCgroupIsLeftFree(t *testing.T) {
	write := func(file, text string) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, file)
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0))
		}
	}
	for name, test := range map[string]struct {
		before  func(dir string) error
		message string
	}{
		"first stager":       {func(string) error { return nil }, ""},
		"next stager":        {func(dir string) error { return os.Mkdir(filepath.Join(dir, names.Program), 0o755) }, ""},
		"no cgroup is left":  {write("cgroup.max.descendants", "0"), "make cgroup /sys/fs/cgroup/" + names.Program + ": Resource temporarily unavailable"},
		"threads' neighbour": {write("threads/cgroup.type", "threaded"), "enter cgroup /sys/fs/cgroup/" + names.Program + ": Operation not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cgroupOfVersion2(t)
			if err := test.before(dir); err != nil {
				t.Fatal(err)
			}
			folder, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			cmd := failingStager(t, failing.Call{}, "wait", unix.CLONE_NEWPID, cgroupVariable+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd())}
			var messages strings.Builder
			cmd.Stderr = &messages
			out, err := cmd.StdoutPipe()
			in, inErr := cmd.StdinPipe()
			if err = errors.Join(err, inErr); err == nil {
				defer in.Close()
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var line string
			var init int
			_, _ = fmt.Fscan(out, &line, &init) // nothing of a stager that does not start
			procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			leaf, _ := os.ReadFile(filepath.Join(dir, names.Program, "cgroup.procs"))
			_, _ = cmd.Process.Kill(), cmd.Wait()
			if test.message != "" {
				if want := names.Program + ": " + test.message + "\n"; messages.String() != want {
					t.Errorf("the supervisor says %q, stderr %q, want %q", line, messages.String(), want)
				}
				return
			}
			isGone(t, init)
			found := strings.Fields(string(leaf))
			if line != "up" || err != nil || len(procs) > 0 || len(found) != 2 {
				t.Errorf("the supervisor says %q; %v; in the daemon's cgroup are %q, in its leaf %q; stderr %q", line, err, procs, found, messages.String())
			}
		})
	}
}
