package container

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/surroundings"
)

// The starts of a PID 1 end, one way or the other, while two processes on two cores stop every child
// between its fork and its exec, again and again.
func TestStartsEndWhileOtherProcessesStopThem(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "stopped-probe")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(surroundings.Patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() || err != nil {
		t.Errorf("the starts ended with %v:\n%s", err, out.String())
	}
	t.Log(out.String())
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
	e, err := c.newEntrance(&process, shimJoin, nil)
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
	if err := e.resultOf(shim, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "not started within 50ms") {
		t.Errorf("error %v", err)
	}
	if state, err := shim.Wait(); err != nil || state.String() != "signal: killed" {
		t.Errorf("the shim ended with %v, %v", state, err)
	}
}
