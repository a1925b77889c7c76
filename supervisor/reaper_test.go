package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fork starts a shell script as a child of the test.
func fork(t *testing.T, script string) Process {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	return process(pid)
}

// awaitZombie waits until a child has ended, and leaves it to be waited for.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatalf("wait for child %d: %v", pid, err)
		}
	}
}

func spawn(t *testing.T, r *Reaper, script string) *Child {
	t.Helper()
	child, err := r.Spawn(func() (Process, error) { return fork(t, script), nil })
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func exitAfter(c *Child) Exit {
	<-c.Done()
	return c.Exit()
}

// awaitNoChildren waits until the test has no child, a zombie included.
func awaitNoChildren(t *testing.T) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.ECHILD {
			return
		}
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

func TestReaperKeepsACodeThatCameBeforeItsRegistration(t *testing.T) {
	r := newReaper(t)
	child, err := r.Spawn(func() (Process, error) {
		p := fork(t, "exit 3")
		awaitZombie(t, p.PID())
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := exitAfter(child); got != (Exit{Code: 3}) {
		t.Errorf("%+v", got)
	}
	if err := child.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestReaperLeavesAStartItsOwnChildren(t *testing.T) {
	r := newReaper(t)
	other := spawn(t, r, "exec sleep 1000")
	_, err := r.Spawn(func() (Process, error) {
		helper := fork(t, "exit 9")
		awaitZombie(t, helper.PID())
		// A registered process is collected while the start is under way, and
		// the helper is not.
		if err := other.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if got := exitAfter(other); got != (Exit{137, "killed"}) {
			t.Errorf("%+v", got)
		}
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(helper.PID(), &status, 0, nil); err != nil || pid != helper.PID() || status.ExitStatus() != 9 {
			t.Errorf("wait for helper: %d, %v, %v", pid, status, err)
		}
		return nil, errors.New("stop here")
	})
	if err == nil {
		t.Error("the start's error is lost")
	}
}

func TestReaperStartsInParallelWhileAPassIsOwed(t *testing.T) {
	const n = 8
	r := newReaper(t)
	r.mu.Lock()
	r.owed = time.Now().Add(time.Hour)
	r.mu.Unlock()
	var all, ended sync.WaitGroup
	all.Add(n)
	for i := range n {
		ended.Go(func() {
			child, err := r.Spawn(func() (Process, error) {
				all.Done()
				all.Wait()
				return fork(t, fmt.Sprint("exit ", i)), nil
			})
			if err != nil {
				t.Error(err)
			} else if got := exitAfter(child); got.Code != i {
				t.Errorf("child %d: %+v", i, got)
			}
		})
	}
	ended.Wait()
}

func TestReaperIsNotStarvedByStarts(t *testing.T) {
	r := newReaper(t)
	inside, release := make(chan struct{}), make(chan struct{})
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = r.Spawn(func() (Process, error) {
			close(inside)
			<-release
			return nil, errors.New("nothing")
		})
	}()
	<-inside
	orphan := fork(t, "exit 0").PID()
	awaitZombie(t, orphan)
	r.mu.Lock()
	r.owed = time.Now().Add(-time.Hour)
	r.mu.Unlock()
	time.AfterFunc(time.Millisecond, func() { close(release) })
	_, _ = r.Spawn(func() (Process, error) {
		if err := unix.Waitid(unix.P_PID, orphan, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != unix.ECHILD {
			t.Errorf("the orphan was not reaped: %v", err)
		}
		return nil, errors.New("nothing")
	})
	<-first
}

func TestAStartThatHangsDoesNotKeepOthersBack(t *testing.T) {
	r := newReaper(t)
	inside, release, first := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(first)
		_, _ = r.Spawn(func() (Process, error) {
			close(inside)
			<-release
			return nil, errors.New("nothing")
		})
	}()
	<-inside
	r.mu.Lock()
	r.owed = time.Now().Add(-time.Hour)
	r.mu.Unlock()
	if got := exitAfter(spawn(t, r, "exit 5")); got != (Exit{Code: 5}) {
		t.Errorf("%+v", got)
	}
	close(release)
	<-first
}

func TestReaperOrphans(t *testing.T) {
	r := newReaper(t)
	waiting := spawn(t, r, "read forever </dev/ptmx")
	shell := "i=0; while [ $i -lt 2500 ]; do ( exit 77 & ); i=$((i+1)); done; exit "
	var children []*Child
	for i := range 4 {
		children = append(children, spawn(t, r, shell+fmt.Sprint(i)))
	}
	for i, c := range children {
		if got := exitAfter(c); got != (Exit{Code: i}) {
			t.Errorf("child %d: %+v", i, got)
		}
	}
	if err := waiting.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if got := exitAfter(waiting); got != (Exit{137, "killed"}) {
		t.Errorf("%+v", got)
	}
	awaitNoChildren(t)
}

func TestTenAppsEndAtOnce(t *testing.T) {
	b := newBoxes(t)
	gate, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	var apps []App
	for i := range 10 {
		apps = append(apps, App{
			Name: fmt.Sprint("app", i), Stdin: gate,
			Main: b.sh(fmt.Sprintf("read gate; (exit 99 &); exit %d", i)),
		})
	}
	pod := start(t, Config{Exit: ExitAll, Apps: apps}).up()
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.over(); err != nil {
		t.Fatal(err)
	}
	for i, s := range pod.Status() {
		if *s.Exit != (Exit{Code: i}) {
			t.Errorf("app %d: %+v", i, *s.Exit)
		}
	}
}

// TestAsPIDOne runs a pod as PID 1 of a PID namespace of its own. Its app
// sends PID 1 every signal that must not end it, then the one that does.
func TestAsPIDOne(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPIDOneChild$", "-test.v")
	cmd.Env = append(os.Environ(), "SUPERVISOR_TEST_PID1=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestPIDOneChild") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// checkNothingEndsUs looks for signals that are neither caught nor ignored.
// Whether one of them ends PID 1 is a matter of chance.
func checkNothingEndsUs(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var looked, caught, ignored uint64
	for line := range strings.Lines(string(text)) {
		for name, mask := range map[string]*uint64{"SigCgt:": &caught, "SigIgn:": &ignored} {
			if value, found := strings.CutPrefix(line, name); found {
				n, err := fmt.Sscanf(value, "%x", mask)
				if err != nil {
					t.Fatal(err)
				}
				looked += uint64(n)
			}
		}
	}
	if looked != 2 {
		t.Fatalf("no masks of signals in\n%s", text)
	}
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCONT:
			continue // nobody can catch the first two; the last ends nothing
		}
		if (caught|ignored)>>(s-1)&1 == 0 {
			t.Errorf("%v has its default action", s)
		}
	}
}

func TestPIDOneChild(t *testing.T) {
	if os.Getenv("SUPERVISOR_TEST_PID1") == "" {
		return // TestAsPIDOne's child does the rest
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	ctx, release := CatchSignals(t.Context())
	defer release()
	checkNothingEndsUs(t)
	b := newBoxes(t)
	out := newLog()
	pod := NewPod(Config{Reaper: newReaper(t), Grace: time.Minute, Apps: []App{{Name: "app", Stdout: out, Main: b.sh(`
		(sleep 0 & exit 9)
		for s in 1 4 5 6 7 8 10 11 12 13 14 16 17 18 20 21 22 23 24 25 26 27 28 29 30 31 34 64; do kill -$s 1; done
		trap 'exit 4' TERM
		kill -TERM 1
		kill -TERM 1
		while :; do sleep 1000 & wait; done`)}}})
	code, err := pod.Run(ctx, func() error { return nil })
	if code != 0 || err != nil || os.Getpid() != 1 {
		t.Errorf("Run() = %d, %v as %d", code, err, os.Getpid())
	}
	if got := *pod.Status()[0].Exit; got != (Exit{Code: 4}) {
		t.Errorf("app: %+v", got)
	}
}
