package container

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/surroundings"
)

// The starts of a PID 1 end, one way or the other, while two processes on two cores stop every child
// between its fork and its exec, again and again.
func TestStartsEndWhileOtherProcessesStopThem(t *testing.T) {
	t.Log(runProbe(t, "stopped-probe"))
}

// runProbe runs a probe as PID 1, and returns its output.
func runProbe(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", append([]string{name}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(surroundings.Patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() || err != nil {
		t.Errorf("%s ended with %v:\n%s", name, err, out.String())
	}
	return out.String()
}

// Processes that are kept from their execs by stops, in turns, are killed when they have had their time, and their
// starts end: until then they have the supervisor's memory.
func TestStartsThatAreStoppedAgainAndAgainAreKilled(t *testing.T) {
	const one = "signal: killed, in time: true\n"
	if out := runProbe(t, "kept-probe", filepath.Join(t.TempDir(), "program")); out != one+one {
		t.Errorf("the starts ended with %q", out)
	}
}

// keptProbe is a PID 1. It has a lease of its children's program, for which the execs wait, and stops the children
// meanwhile (fcntl(2), F_SETLEASE). It says how each child ended, and whether that had its time.
func keptProbe(out io.Writer) error {
	runtime.GOMAXPROCS(4)     // two wait for the exec
	debug.SetGCPercent(-1)    // a collection would wait, too
	signal.Ignore(unix.SIGIO) // by which the kernel asks for the lease back
	program, err := os.OpenFile(os.Args[2], os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	defer program.Close()
	_, err = unix.FcntlInt(program.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if err := errors.Join(err, unix.Mount("proc", "/proc", "proc", 0, ""), watchStages()); err != nil {
		return err
	}
	defer starting()()
	stopping := make(chan struct{}, 1)
	go func() {
		for {
			_ = unix.Kill(-1, unix.SIGSTOP) // all but PID 1, which is this one
			select {
			case stopping <- struct{}{}:
			default:
			}
		}
	}()
	<-stopping // also for the child of Go's trial of clone(2)
	ended := make(chan string)
	for range 2 {
		go func() {
			begin := time.Now()
			err := exec.Command(program.Name()).Run()
			took := time.Since(begin)
			ended <- fmt.Sprintf("%v, in time: %v\n", err, took >= 100*time.Millisecond && took < 5*time.Second)
		}()
	}
	_, _ = fmt.Fprint(out, <-ended, <-ended)
	return nil
}

// A process of a start that has memory of its own is continued however long it is being stopped: it delays its own
// start only. On a kernel without kcmp(2), which could say what it has, it is killed.
func TestACopyOfTheProgramIsContinued(t *testing.T) {
	for name, want := range map[string]string{"with kcmp": "<nil>\n", "without kcmp": "signal: killed\n"} {
		t.Run(name, func(t *testing.T) {
			if out := runProbe(t, "copy-probe", name); out != want {
				t.Errorf("the process ended with %q, want %q", out, want)
			}
		})
	}
}

// copyProbe is a PID 1. Its child executes this program, and is stopped for longer than one that shares memory may be.
func copyProbe(out io.Writer) error {
	runtime.LockOSThread() // the watching thread has this one's filter
	var err error
	enough := time.After(500 * time.Millisecond)
	if os.Args[2] != "with kcmp" {
		enough = nil // it is killed
	}
	if os.Args[2] == "without kcmp" {
		err = failing.Call{Number: unix.SYS_KCMP}.Fail()
	}
	if err := errors.Join(err, unix.Mount("proc", "/proc", "proc", 0, ""), watchStages()); err != nil {
		return err
	}
	defer starting()()
	cmd := exec.Command("/proc/self/exe", "wait-probe")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(unix.SIGSTOP) // it may have ended just now
		case <-enough:
			in.Close()
			again.Stop()
		case err := <-ended:
			_, err = fmt.Fprintln(out, err)
			return err
		}
	}
}

// waitProbe waits for the end of its stdin.
func waitProbe(io.Writer) error {
	_, err := io.ReadAll(os.Stdin)
	return err
}

// stoppedProbe is a PID 1. It makes children that are stopped before their exec, and collects garbage
// meanwhile: a collection stops the world.
func stoppedProbe(out io.Writer) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := watchStages(); err != nil {
		return err
	}
	for range 2 {
		if err := exec.Command("/proc/self/exe", "stop-probe").Start(); err != nil {
			return err
		}
	}
	defer starting()()
	go func() {
		for {
			runtime.GC()
		}
	}()
	for range 20 {
		begin := time.Now()
		cmd := exec.Command("/bin/true")
		err := cmd.Start()
		took := time.Since(begin)
		if err == nil {
			_ = cmd.Process.Kill() // after its exec it is an app, and stays stopped
			err = cmd.Wait()
		}
		if _, err := fmt.Fprintln(out, err, took); err != nil {
			return err
		}
	}
	return nil
}

// stopProbe sends SIGSTOP to the next PIDs, for ever.
func stopProbe(io.Writer) error { return hostile.Programs()["stopper"]() }

// An app that has stopped itself stays stopped, whatever starts beside it.
func TestAnAppThatHasStoppedItselfStaysStopped(t *testing.T) {
	r := newRuntime(t)
	c, pid := startSleeper(t, r, testSpec(busyboxRoot(t), "sh", "-c", "kill -STOP $$; sleep 1000"))
	stopped := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}
	surroundings.Eventually(t, "the app has stopped itself", stopped)
	for range 3 {
		if _, status := execOutput(t, c, rootCommand("true")); status != 0 {
			t.Errorf("a command ends with %#x", status)
		}
	}
	if !stopped() {
		t.Error("the app goes on")
	}
}

// A command whose shim hangs is killed when it has had its time.
func TestACommandThatHangsInItsStartIsKilled(t *testing.T) {
	sleeper, _ := startSleeper(t, newRuntime(t), testSpec(busyboxRoot(t), "sleep", "1000"))
	c := sleeper.(*container)
	process := c.spec.Process
	e, err := c.newEntrance(&process, c.joinFlags(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	// The shim writes to what it takes for a cgroup's file, and nothing reads that.
	out, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer full.Close()
	if _, err := unix.FcntlInt(full.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := full.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	shim, err := (&joining{entrance: e, cgroupFiles: cgroupFiles{files: []*os.File{full}}}).enter()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.within(50*time.Millisecond, shim, e.result); err == nil || !strings.Contains(err.Error(), "not started within 50ms") {
		t.Errorf("error %v", err)
	}
	if state, err := shim.Wait(); err != nil || state.String() != "signal: killed" {
		t.Errorf("the shim ended with %v, %v", state, err)
	}
}
