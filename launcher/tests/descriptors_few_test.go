package tests

import (
	"fmt"
	"testing"

	"kurma.io/stager/tests/harness"
)

// openFiles makes the launcher run with a limit of open files, until the returned function is called.
func openFiles(b *harness.Machine, limit int) (end func()) {
	b.Inside = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", limit, limit)}
	return func() { b.Inside = nil }
}

func podOfSleepers(n int) harness.PodDoc {
	var apps []harness.AppDoc
	for i := range n {
		apps = append(apps, suite.Command(fmt.Sprintf("app%d", i), "/bin/sleep", "1000"))
	}
	return harness.PodOf(apps...)
}

// The limit is named before anything starts, and how many files are needed.
func TestAPodThatNeedsTooManyOpenFilesIsRefused(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	for _, tt := range []struct {
		apps, limit, need int
	}{{1, 16, 64}, {1, 32, 64}, {1, 64, 120}, {150, 1024, 3100}} {
		end := openFiles(b, tt.limit)
		b.Refuse("p", podOfSleepers(tt.apps), fmt.Sprintf("limit of open files (ulimit -Hn) is %d", tt.limit), fmt.Sprintf("at least %d", tt.need))
		end()
	}
}

// What a limit allows also works to its end, and a pod that was started with a higher one is stopped.
func TestPodsOfManyAppsLiveWithinTheLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	end := openFiles(b, 1024)
	small := b.Up("small", podOfSleepers(46))
	if r := small.Exec("app45", "echo", "here"); r.Code != 0 || r.Stdout != "here\n" {
		t.Errorf("exec: %+v", r)
	}
	small.Stop()
	end()

	large := b.Up("large", podOfSleepers(150))
	defer openFiles(b, 1024)()
	large.Stop()
}
