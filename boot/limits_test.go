package boot

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
)

// setLimit sets a resource limit of the test's process, to what it is, as an app of user 0 would.
func setLimit(t *testing.T) (message string, err error) {
	t.Helper()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", "prlimit", fmt.Sprintf("--pid=%d", os.Getpid()),
		fmt.Sprintf("--nofile=%d:%d", files.Cur, files.Max)).CombinedOutput()
	return string(out), err
}

func TestAppsCannotSetTheSupervisorsLimits(t *testing.T) {
	if message, err := setLimit(t); err != nil {
		t.Fatalf("before: %v: %s", err, message)
	}
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(unix.Setresgid(-1, -1, os.Getegid()), os.WriteFile("/proc/self/oom_score_adj", before, 0)); err != nil {
			t.Error(err)
		}
	}()
	const score = 77
	p := &Pod{Parts: Parts{Log: slog.New(slog.DiscardHandler)}, Plan: &plan.Pod{OOMScoreAdj: score}}
	if err := guardLimits(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if message, err := setLimit(t); err == nil || !strings.Contains(message, "not permitted") {
		t.Errorf("an app sets them: %v: %s", err, message)
	}
	if got, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(score) {
		t.Errorf("oom_score_adj is %q, %v", got, err)
	}
}

// Earlier, a FUSE file system of the roots would refuse the supervisor; later, apps run.
func TestTheLimitsAreGuardedBeforeTheAppsRun(t *testing.T) {
	var order []string
	for _, step := range Steps() {
		if slices.Contains([]string{"mount roots", "guard own limits", "run apps"}, step.Name) {
			order = append(order, step.Name)
		}
	}
	if want := []string{"mount roots", "guard own limits", "run apps"}; !slices.Equal(order, want) {
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
	if err := checkDescriptors(2); err != nil {
		t.Errorf("2 apps: %v", err)
	}
	const want = "the limit of open files (ulimit -Hn) is 140: a pod of 3 apps needs at least 160"
	if err := checkDescriptors(3); err == nil || err.Error() != want {
		t.Errorf("3 apps: %v, want %s", err, want)
	}
}
