package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/hostile"
)

// The test runs a pod as PID 1 of a PID namespace of its own. Its app
// sends PID 1 every signal that must not end it, then the one that does.
func TestPIDOneSurvivesTheSignalsOfItsApps(t *testing.T) { asPIDOne(t, "TestChildRunsAPodAsPIDOne") }

// No signal ends PID 1, in whatever way and with whatever data user 0 sends it to any of its threads.
func TestPIDOneSurvivesSignalsWithData(t *testing.T) { asPIDOne(t, "TestChildIsSentEverySignal") }

// asPIDOne runs another test in a process that is PID 1 of its own PID namespace.
func asPIDOne(t *testing.T, test string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SUPERVISOR_TEST_PID1=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// mountOwnProc mounts a /proc of this process's PID namespace.
func mountOwnProc(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
}

// dispositions are the masks of a process's signals.
type dispositions struct{ caught, ignored uint64 }

func newDispositions(t *testing.T, status []byte) (d dispositions) {
	t.Helper()
	for name, mask := range map[string]*uint64{"SigCgt:": &d.caught, "SigIgn:": &d.ignored} {
		_, value, _ := strings.Cut(string(status), name)
		if _, err := fmt.Sscanf(value, "%x", mask); err != nil {
			t.Fatalf("%s %v in\n%s", name, err, status)
		}
	}
	return d
}

func ownDispositions(t *testing.T) dispositions {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return newDispositions(t, status)
}

// bit returns a signal's bit in a mask.
func bit(s syscall.Signal) uint64 { return 1 << (s - 1) }

// checkNothingEndsUs looks for signals that are neither caught nor ignored.
// Whether one of them ends PID 1 is a matter of chance.
func checkNothingEndsUs(t *testing.T) {
	t.Helper()
	own := ownDispositions(t)
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCONT:
			continue // the first two cannot be caught; the last ends nothing
		}
		if (own.caught|own.ignored)&bit(s) == 0 {
			t.Errorf("%v has its default action", s)
		}
	}
}

func TestChildRunsAPodAsPIDOne(t *testing.T) {
	if os.Getenv("SUPERVISOR_TEST_PID1") == "" {
		return // TestPIDOneSurvivesTheSignalsOfItsApps's child does the rest
	}
	mountOwnProc(t)
	ctx, release := CatchSignals(t.Context())
	defer release()
	checkNothingEndsUs(t)
	b := newFakes(t)
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

func TestChildIsSentEverySignal(t *testing.T) {
	if os.Getenv("SUPERVISOR_TEST_PID1") == "" {
		return // TestPIDOneSurvivesSignalsWithData's child does the rest
	}
	mountOwnProc(t)
	defer IgnoreSignals()()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestChildSendsEverySignal$")
	cmd.Env = append(os.Environ(), "SUPERVISOR_TEST_SENDER=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestChildSendsEverySignal(t *testing.T) {
	if os.Getenv("SUPERVISOR_TEST_SENDER") == "" {
		return // TestChildIsSentEverySignal's child does the rest
	}
	if sent, err := hostile.Signal(1); err != nil || sent == 0 {
		t.Errorf("%d signals are sent: %v", sent, err)
	}
}

// The signals that stop a pod where CatchSignals is called do nothing after IgnoreSignals: they
// would end this program. A child has them at their default.
func TestIgnoredSignalsDoNothing(t *testing.T) {
	release := IgnoreSignals()
	defer release()
	checkNothingEndsUs(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		for range 3 {
			if err := unix.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	status, err := exec.Command("/bin/cat", "/proc/self/status").Output() // a shell changes some of its signals itself
	if err != nil {
		t.Fatal(err)
	}
	const wanted = 1<<(syscall.SIGTERM-1) | 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) | 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGABRT-1) | 1<<(syscall.SIGURG-1)
	if ignored := newDispositions(t, status).ignored & wanted; ignored != 0 {
		t.Errorf("a child ignores the signals %#x", ignored)
	}
}

// A signal wakes the thread that it is sent to if it has a handler: only the Reaper's has one.
func TestIgnoredSignalsWakeNoThread(t *testing.T) {
	release := IgnoreSignals()
	// The C library may have its own handler of signal 33.
	if got := ownDispositions(t).caught; got&^bit(33) != bit(syscall.SIGCHLD) {
		t.Errorf("the signals %#x have a handler, want %#x", got, bit(syscall.SIGCHLD))
	}
	release()
	if got := ownDispositions(t).caught; got&bit(syscall.SIGURG) == 0 || got&bit(syscall.SIGTERM) == 0 {
		t.Errorf("after the release, only the signals %#x have a handler", got)
	}
}

// Where SIGURG is ignored, the garbage collector stops goroutines that only call functions.
func TestGoroutinesArePreemptedWithoutSIGURG(t *testing.T) {
	defer IgnoreSignals()()
	var over atomic.Bool
	ended := make(chan int)
	for range 2 * runtime.GOMAXPROCS(0) {
		go func() {
			n := 0
			for !over.Load() {
				n = step(n)
			}
			ended <- n
		}()
	}
	for range 10 {
		runtime.GC()
	}
	over.Store(true)
	for range 2 * runtime.GOMAXPROCS(0) {
		<-ended
	}
}

//go:noinline
func step(n int) int {
	if n < 0 {
		return strings.Count("", "") // a function without a frame is no place for preemption
	}
	return n + 1
}

// What a program starts after the release has a signal that was ignored at its default again.
func TestReleasedSignalsAreNoLongerIgnored(t *testing.T) {
	IgnoreSignals()()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGXFSZ, syscall.SIGSYS} {
		err := exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -%d $$", s)).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != s {
			t.Errorf("child after %v: %v", s, err)
		}
	}
}
