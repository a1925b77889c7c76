package boot

import (
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// The supervisor and init are the OOM killer's last choice, as far as the pod's plan says.
func TestTheOOMKillerChoosesTheSupervisorAndInitLast(t *testing.T) {
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile("/proc/self/oom_score_adj", before, 0); err != nil {
			t.Error(err)
		}
	}()
	init := exec.Command("sleep", "1000")
	if err := init.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = init.Process.Kill(), init.Wait() }()
	const score = 77
	p := &Pod{Parts: Parts{Log: slog.New(slog.DiscardHandler), Init: fakeInit{pid: init.Process.Pid}}, Plan: &plan.Pod{OOMScoreAdj: score}}
	if err := guardLife(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []string{"self", strconv.Itoa(init.Process.Pid)} {
		if got, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(score) {
			t.Errorf("oom_score_adj of %s is %q, %v", pid, got, err)
		}
	}
}

// Later, apps run.
func TestTheSupervisorsLifeIsGuardedBeforeTheAppsRun(t *testing.T) {
	var order []string
	for _, step := range Steps() {
		if slices.Contains([]string{"mount roots", "guard own life", "run apps"}, step.Name) {
			order = append(order, step.Name)
		}
	}
	if want := []string{"mount roots", "guard own life", "run apps"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

func TestAPodNeedsDescriptorsForEachApp(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 140, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	two := make([]plan.App, 2)
	if err := checkDescriptors(two); err != nil {
		t.Errorf("2 apps: %v", err)
	}
	const want = "the limit of open files (ulimit -Hn) is 140: a pod of 3 apps needs at least 160"
	if err := checkDescriptors(make([]plan.App, 3)); err == nil || err.Error() != want {
		t.Errorf("3 apps: %v, want %s", err, want)
	}
	two[1].Health = new(spec.HealthCheck)
	if err := checkDescriptors(two); err == nil || !strings.HasSuffix(err.Error(), "needs at least 150") {
		t.Errorf("2 apps, one with a health check: %v", err)
	}
}
