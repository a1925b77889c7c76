package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// A pod whose init is killed ends, and its log says why.
func TestAPodWithoutItsInitSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]func(...harness.AppDoc) harness.PodDoc{"": harness.PodOf, "host's PID namespace": hostPID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			p := b.Up("p", doc(suite.Shell("a", "(setsid sleep 1000 &); exec sleep 1000"), suite.Shell("b", "exec sleep 1000")))
			signalTo(t, p.Init(), unix.SIGKILL)
			harness.Eventually(t, "the daemon knows", func() bool { return b.PS()[0].State == "exited" })
			if log := p.StagerLog(); !strings.Contains(log, "the pod's init was killed") {
				t.Errorf("the log is\n%s", log)
			}
			b.CheckProcesses()
			b.Must("rm", "p")
			b.CheckGone()
		})
	}
}

// While the host has stopped init, the apps run on, status answers, a command fails in time, and the pod can be stopped.
func TestAStoppedInitHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]func(...harness.AppDoc) harness.PodDoc{"": harness.PodOf, "host's PID namespace": hostPID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			dir := b.Folder("sync", 0o777)
			const script = "until [ -e /sync/stopped ]; do sleep 0.01; done; echo runs on; exec sleep 1000"
			mark := "mark of " + b.Cgroup
			p := b.Up("p", doc(suite.Shell("a", script)).HostVolume("sync", dir, "/sync"))
			signalTo(t, p.Init(), unix.SIGSTOP)
			if err := os.WriteFile(filepath.Join(dir, "stopped"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			p.Sees("a", "runs on")
			if s := p.Status()["a"]; s.Exited {
				t.Errorf("status is %+v", s)
			}
			if r := p.Exec("a", "sh", "-c", "sleep 1000; true", mark); r.Code == 0 || !strings.Contains(r.Stderr, "init has not answered after") {
				t.Errorf("%+v", r)
			}
			signalTo(t, p.Init(), unix.SIGCONT)
			if r := p.Exec("a", "true"); r.Code != 0 {
				t.Errorf("after init goes on: %+v", r)
			}
			harness.Eventually(t, "the command that has failed is gone", func() bool { return len(processesWith(mark)) == 0 })
			signalTo(t, p.Init(), unix.SIGSTOP)
			p.Launcher("stop", "p") // init has not reported the app's end
			b.CheckProcesses()
			b.Must("rm", "p")
			b.CheckGone()
		})
	}
}

func signalTo(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}
