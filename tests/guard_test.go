package tests

import (
	"fmt"
	"os"
	"testing"

	"kurma.io/stager/tests/harness"
)

// An app that forks without end reaches its limit. The other app, status and commands of run in both
// apps still work, and the pod stops in time.
func TestForkBombMeetsItsLimit(t *testing.T) {
	m := suite.NewMachine(t, harness.StagerConfig(`{"maxProcesses": {"app": 50, "pod": 200}, "gracePeriod": "1s"}`))
	bomb := suite.Shell("bomb", "echo begins; f() { f | f & }; while :; do f; done 2>/dev/null")
	calm := suite.Shell("calm", "echo here; while :; do sleep 1; done")
	p := m.Up("forks", harness.PodOf(bomb, calm))
	p.Sees("bomb", "begins")
	p.Sees("calm", "here")
	for range 5 {
		if r := p.Exec("calm", "/bin/sh", "-c", "echo answer"); r.Code != 0 || r.Stdout != "answer\n" {
			t.Errorf("exec beside a fork bomb: %+v", r)
		}
		if s := p.Status()["calm"]; s.Exited || s.PID == 0 {
			t.Errorf("status of the neighbour: %+v", s)
		}
	}
	p.Stop()
}

// The supervisor and init are the OOM killer's last choice. An app cannot change init's files in /proc, and they show no
// path of the host.
func TestSupervisorsFilesAreOutOfReach(t *testing.T) {
	m := suite.NewMachine(t)
	p := m.Up("guarded", harness.PodOf(suite.Shell("a", `cd /proc/1
		for file in oom_score_adj autogroup coredump_filter clear_refs; do
			[ ! -e $file ] || { echo 0 >$file; } 2>/dev/null && [ -e $file ] && echo "$file is writable"
		done
		cat mountinfo mounts mountstats task/*/mountinfo 2>/dev/null | grep . && echo "mounts are shown"
		cat /proc/self/oom_score_adj
		echo done; while :; do sleep 1; done`)))
	p.Sees("a", "done")
	if log := p.Logs("a"); log != "0\ndone\n" {
		t.Errorf("the app reports %q", log)
	}
	// Without CAP_SYS_RESOURCE they cannot go below what the test has.
	want := "-1000\n"
	if !mayLowerOOMScore() {
		want = "0\n"
	}
	for name, pid := range map[string]int{"supervisor": p.Stager, "init": p.Init()} {
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil || string(score) != want {
			t.Errorf("the %s's oom_score_adj is %q, %v; want %q", name, score, err, want)
		}
	}
	p.Stop()
}

// mayLowerOOMScore reports whether this machine lets root protect a process from the OOM killer
// (proc_pid_oom_score_adj(5)).
func mayLowerOOMScore() bool {
	const path = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, []byte("-1000"), 0) != nil {
		return false
	}
	_ = os.WriteFile(path, before, 0) // up is always allowed
	return true
}
