package waiter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/firstprocess"
	"kurma.io/stager/tests/surroundings"
	"kurma.io/stager/waiter/helper"
)

// helperVariable says which helper the supervisor starts.
const helperVariable = "WAITER_TEST_HELPER"

// A guard that cannot make its helper's surroundings, or does not understand what it is to execute, reports that, and
// executes nothing.
func TestGuardStopsWhereTheKernelRefuses(t *testing.T) {
	const outOfTheWay = 3 + 32                                     // WAITER_MAX_FILES
	slaves := map[int]uint32{0: 0, 3: unix.MS_SLAVE | unix.MS_REC} // the guard's; the supervisor's mount(2) has a source
	for name, test := range map[string]struct {
		fails     failing.Call
		namespace int
		helper    string // see superviseHelper
		want      string
	}{
		"nothing":            {callOf(0, nil), unix.CLONE_NEWPID, "plain", "<nil>"},
		"own mounts":         {callOf(0, nil), unix.CLONE_NEWPID, "own mounts", "<nil>"},
		"PID namespace":      {callOf(unix.SYS_CLONE, map[int]uint32{0: unix.CLONE_NEWPID | uint32(unix.SIGCHLD)}), 0, "plain", "fork: operation not permitted"},
		"helper":             {callOf(unix.SYS_CLONE, map[int]uint32{0: unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID | uint32(unix.SIGCHLD)}), unix.CLONE_NEWPID, "plain", "fork: operation not permitted"}, // fork(3)'s
		"slave mounts":       {callOf(unix.SYS_MOUNT, slaves), unix.CLONE_NEWPID, "own mounts", "enter mount namespace: operation not permitted"},
		"/proc":              {callOf(unix.SYS_MOUNT, map[int]uint32{3: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}), unix.CLONE_NEWPID, "own mounts", "mount /proc: operation not permitted"},
		"files":              {callOf(unix.SYS_FCNTL, map[int]uint32{1: unix.F_DUPFD_CLOEXEC, 2: outOfTheWay}), unix.CLONE_NEWPID, "plain", "pass files: operation not permitted"},
		"stdin":              {callOf(sysDup2, map[int]uint32{1: 0}), unix.CLONE_NEWPID, "plain", "pass files: operation not permitted"},
		"stdout":             {callOf(sysDup2, map[int]uint32{1: 1}), unix.CLONE_NEWPID, "plain", "pass files: operation not permitted"},
		"stderr":             {callOf(sysDup2, map[int]uint32{1: 2}), unix.CLONE_NEWPID, "plain", "pass files: operation not permitted"},
		"a file":             {callOf(sysDup2, map[int]uint32{1: 4}), unix.CLONE_NEWPID, "with two files", "pass files: operation not permitted"},
		"ten files":          {callOf(0, nil), unix.CLONE_NEWPID, "with ten files", "<nil>"},
		"no mount namespace": {callOf(0, nil), unix.CLONE_NEWPID, "no mount namespace", "enter mount namespace: invalid argument"},
		"plan too long":      {callOf(0, nil), unix.CLONE_NEWPID, "plan too long", "read plan: invalid argument"},
		"no program":         {callOf(0, nil), unix.CLONE_NEWPID, "no program", "read plan: invalid argument"},
		"too few files":      {callOf(0, nil), unix.CLONE_NEWPID, "too few files", errNoReport.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			variables := firstprocess.Environment("", uintptr(test.namespace))[1:]
			stdout, stderr, code := runFailing(t, test.fails, append(variables, helperVariable+"="+test.helper)...)
			if want := "the helper: " + test.want + "\n"; stdout != want || code != 0 {
				t.Errorf("exit code %d; stdout %q, want %q; stderr %q", code, stdout, want, stderr)
			}
		})
	}
}

// A helper has the arguments and variables that it was given, no descriptor but its stdio, a session of its own, no
// signal blocked or ignored, and the OOM score that the waiter had from the daemon, not the waiter's later one. What it
// mounts is the supervisor's, or stays its own if asked, also in a mount that the supervisor shares.
func TestHelpersSurroundings(t *testing.T) {
	daemons, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := runFailing(t, failing.Call{}, append(firstprocess.Environment("", unix.CLONE_NEWPID)[1:], helperVariable+"=surroundings")...)
	want := strings.Join([]string{
		"word $GREETING hello", "session 1", "SigBlk: 0000000000000000", "SigIgn: 0000000000000000", "oom " + strings.TrimSpace(string(daemons)), "mounted", "0", "1", "2", "the helper: <nil>", "",
	}, "\n")
	if stdout != want || code != 0 {
		t.Errorf("exit code %d; stdout %q, want %q; stderr %q", code, stdout, want, stderr)
	}
}

// A pod whose helper runs is up for the daemon, and neither the guard nor the helper outlives the waiter, also where
// the supervisor, in the host's PID namespace, does not see the waiter's end, and where the waiter has ended before the
// guard has asked for its parent-death signal.
func TestAGuardIsNotInTheWay(t *testing.T) {
	late := failing.Call{Number: unix.SYS_PRCTL, Args: map[int]uint32{0: unix.PR_SET_PDEATHSIG}, Silent: true}
	for name, test := range map[string]struct {
		fails      failing.Call
		namespaces uintptr
		helper     string
	}{
		"own PIDs":                             {failing.Call{}, unix.CLONE_NEWPID, "guarded"},
		"host's PIDs, the supervisor is deaf":  {failing.Call{}, 0, "guarded and deaf"},
		"host's PIDs, no signal for the guard": {late, 0, "guarded"},
	} {
		t.Run(name, func(t *testing.T) {
			mark := "WAITER_TEST_MARK=" + t.TempDir()
			cmd, ready, closeOurs := failingWaiter(t, test.fails, append(firstprocess.Environment("", test.namespaces)[1:], helperVariable+"="+test.helper, mark)...)
			out, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout, cmd.Stderr = write, os.Stderr
			if _, err = cmd.StdinPipe(); err == nil {
				err = cmd.Start()
			}
			write.Close()
			closeOurs()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { killMarked(t, mark) })
			defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
			limit := time.Now().Add(surroundings.Patience / 2)
			if err := errors.Join(out.SetReadDeadline(limit), ready.SetReadDeadline(limit)); err != nil {
				t.Fatal(err)
			}
			up := make([]byte, len("up\n"))
			if _, err := io.ReadFull(out, up); err != nil || string(up) != "up\n" {
				t.Fatalf("the supervisor says %q, %v", up, err)
			}
			if _, err := ready.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("when the pod is up the ready pipe says %v", err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
				t.Errorf("the guard or the helper is still there: %q, %v", rest, err)
			}
		})
	}
}

// guarded is a supervisor that says that its pod is up, with a helper that has the supervisor's stdout. A deaf one has
// it no more itself, and waits, whatever happens to the waiter.
func guarded(line *Line, ready *os.File, deaf bool) error {
	_, err := line.Helpers(slog.New(lines{})).Start(context.Background(), helper.Command{
		Name: "h", Args: []string{"/bin/sh", "-c", "sleep 1000; exit"}, Env: []string{"PATH=/usr/bin:/bin"}, Files: []*os.File{os.Stdout},
	})
	if err == nil {
		err = errors.Join(line.Up(), ready.Close())
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "up")
	if !deaf {
		line.Watch(func() {}, func() {})
	}
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	_, err = os.Stdin.Read(make([]byte, 1)) // the test's pipe, which says nothing
	return err
}

// showSurroundings starts a helper that says what it has. It returns an error if that helper's mount is the
// supervisor's, or the mount of another helper, which has the supervisor's mounts, is not.
func showSurroundings(line *Line) error {
	err := errors.Join(unix.Mount("outer", "/mnt", "tmpfs", 0, ""), unix.Mount("", "/mnt", "", unix.MS_SHARED, ""), os.Mkdir("/mnt/in", 0o755), os.Mkdir("/mnt/both", 0o755))
	if err != nil {
		return err
	}
	script := `echo "word $1 $GREETING"
		set -- $(cat /proc/$$/stat); echo "session $(($6 == $$))"
		grep -E 'Sig(Blk|Ign)' /proc/self/status | tr '\t' ' '
		echo "oom $(cat /proc/self/oom_score_adj)"
		mount -t tmpfs inner /mnt/in && echo mounted
		ls /proc/$$/fd`
	env := []string{"GREETING=hello", "PATH=/usr/bin:/bin"}
	for _, cmd := range []helper.Command{
		{Name: "h", Args: []string{"/bin/sh", "-c", script, "sh", "$GREETING"}, Env: env, OwnMounts: true},
		{Name: "m", Args: []string{"/bin/sh", "-c", "mount -t tmpfs common /mnt/both"}, Env: env},
	} {
		h, err := line.Helpers(slog.New(lines{})).Start(context.Background(), cmd)
		if err == nil {
			err = h.Wait()
		}
		if err != nil {
			return err
		}
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err == nil && strings.Contains(string(mounts), " inner ") {
		err = errors.New("its mount is the supervisor's")
	}
	if err == nil && !strings.Contains(string(mounts), " common ") {
		err = errors.New("the other helper's mount is not the supervisor's")
	}
	return err
}

// lines is a slog.Handler that prints a helper's lines.
type lines struct{}

func (lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l lines) WithGroup(string) slog.Handler          { return l }
func (lines) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "line" {
			fmt.Fprintln(os.Stdout, a.Value)
		}
		return true
	})
	return nil
}

// superviseHelper is a supervisor that starts a helper and says what came of it.
func superviseHelper() {
	ready := boot.TakeDescriptors(os.Environ()).Ready
	line, err := TakeLine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if line.Settle(firstprocess.Namespaces(), ready) != nil {
		os.Exit(0) // the waiter starts this program again
	}
	switch kind := os.Getenv(helperVariable); kind {
	case "surroundings":
		err = showSurroundings(line)
	case "guarded", "guarded and deaf":
		err = guarded(line, ready, kind == "guarded and deaf")
	case "no more requests":
		err = errors.Join(line.channel.Close(), watchWaiter())
	default:
		err = startHelper(line, kind)
	}
	fmt.Fprintln(os.Stdout, "the helper:", err)
	os.Exit(0)
}

func startHelper(line *Line, kind string) error {
	cmd := helper.Command{Name: "h", Args: []string{"/bin/true"}, OwnMounts: kind == "own mounts"}
	plan, err := helperPlan(cmd)
	if err != nil {
		return err
	}
	mounts, count := line.mounts, 6 // WAITER_FILES
	switch kind {
	case "with two files":
		count += 2
	case "with ten files": // some are at the numbers of the guard's own descriptors
		count += 10
	case "no mount namespace":
		mounts, err = os.Open(os.DevNull)
	case "plan too long":
		_, err = plan.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = plan.Write([]byte{0})
		}
	case "no program":
		_, err = plan.WriteAt(make([]byte, 4), 4) // nargs
	case "too few files":
		count--
	}
	if err != nil {
		return err
	}
	return askForHelper(line, cmd.OwnMounts, plan, mounts, count)
}

// askForHelper is Starter.Start with a plan, a mount namespace and a number of descriptors of the test's choice.
func askForHelper(line *Line, ownMounts bool, plan, mounts *os.File, count int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	report, write, err := os.Pipe()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	fds := []int{int(plan.Fd()), int(mounts.Fd()), int(write.Fd()), pair[1]}
	for range 12 {
		fds = append(fds, int(null.Fd()))
	}
	request := []uint32{3, 0, 0, 0} // WAITER_HELPER
	if ownMounts {
		request[3] = 1
	}
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, request); err != nil {
		return err
	}
	if _, _, err := line.channel.WriteMsgUnix(text.Bytes(), unix.UnixRights(fds[:count]...), nil); err != nil {
		return err
	}
	write.Close()
	return helperPipes{report: report}.result(context.Background(), "/bin/true")
}
