package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"

	"golang.org/x/sys/unix"
)

// The fake stager's exit status is 0 when it is stopped, and it writes no states of its apps.
func TestAnUnknownExitCodeIsNotZero(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "p", "example.com/one")
	h.run("stop", "p")
	if out := h.run("ps", "--all"); !strings.Contains(out, "exited (?)") {
		t.Errorf("ps: %s", out)
	}
	if all := h.ps(); len(all) != 1 || all[0].State != "exited" || all[0].Code != nil {
		t.Errorf("ps --json: %+v", all)
	}
	why := "launcher: the exit code of pod \"p\" is not known: the stager has not kept the apps' last states\n"
	if r := h.try("wait", "p"); r != (result{"?\n", why, 1}) {
		t.Errorf("wait: %+v", r)
	}
	if r := h.try("wait", "--json", "p"); r.code != 1 || r.stderr != why || strings.Contains(r.stdout, "code") {
		t.Errorf("wait --json: %+v", r)
	}
	if out := h.run("status", "p"); !strings.Contains(out, "?     last state not kept") {
		t.Errorf("status: %s", out)
	}
	if out := h.run("events", "--since", "1h", "--stream=false"); !strings.Contains(out, "pod p exited (?)") {
		t.Errorf("events: %s", out)
	}
	h.run("rm", "p")
}

func TestADeadPodHasTheCodeOfAKilledOne(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	h.killMonitor(uuid)
	if out := h.run("wait", "p"); out != "137\n" {
		t.Errorf("wait: %q", out)
	}
	if all := h.ps(); len(all) != 1 || all[0].State != "dead" || all[0].Code == nil || *all[0].Code != 137 {
		t.Errorf("ps: %+v", all)
	}
	h.run("gc")
	if out := h.run("events", "--since", "1h", "--stream=false"); !strings.Contains(out, "pod p exited (137)") {
		t.Errorf("events: %s", out)
	}
}

// The code of a pod that is deleted is not unknown because of its stager, and --rm need not be the reason.
func TestThePodIsDeletedBesideWait(t *testing.T) {
	h := newHost(t)
	c := &cli{daemon: must(daemon.Open(must(daemon.ReadConfig(filepath.Join(h.dir, "config.json"))), daemon.Options{}))}
	h.run("run", "--detach", "--name", "p", "example.com/one")
	pod := must(c.daemon.FindPod("p"))
	deleted := func(when string) {
		_, err := c.outcome(t.Context(), pod)
		if want := `pod "p" was deleted before its exit code was read`; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", when, err, want)
		}
	}
	h.run("stop", "p")
	lock := must(os.OpenFile(filepath.Join(pod.Dir, "lock"), os.O_RDWR, 0))
	err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if err != nil {
		t.Fatal(err)
	}
	deleted("while it is being deleted")
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	h.run("rm", "p")
	deleted("afterwards")
}

// A pod that is deleted at its end has its exit code in its last event.
func TestTheExitCodeOfADeletedPodIsKnown(t *testing.T) {
	h := newHost(t)
	c := &cli{daemon: must(daemon.Open(must(daemon.ReadConfig(filepath.Join(h.dir, "config.json"))), daemon.Options{}))}
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	pod := must(c.daemon.FindPod("p"))
	h.killMonitor(uuid)
	h.run("rm", "--force", "p")
	if got, err := c.outcome(t.Context(), pod); err != nil || got.Code == nil || *got.Code != 137 {
		t.Errorf("%+v, %v", got, err)
	}
}
