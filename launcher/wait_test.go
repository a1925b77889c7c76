package main

import (
	"strings"
	"testing"
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
