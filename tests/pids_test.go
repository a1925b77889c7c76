package tests

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// pidsFile returns the path of a file of the pids controller in a cgroup.
func pidsFile(t *testing.T, cgroup, name string) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if path := filepath.Join(dir, cgroup, name); exists(path) {
			return path
		}
	}
	t.Fatalf("no %s in the cgroup %s", name, cgroup)
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Where all tasks of a cgroup around the pod's are used up, which the supervisor cannot see, it makes no more threads
// and no processes, and lives: status answers, commands fail or run, apps end, and the pod stops.
func TestTheSupervisorOutlivesAFullCgroupAroundIt(t *testing.T) {
	m := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "1s", "restart": "always"}`))
	dir := m.Folder("probe", 0o777)
	testProgram(m, dir)
	forker := suite.Shell("forker", "while ! [ -e /probe/go ]; do sleep 0.05; done; exec /probe/probe forker")
	p := m.Up("full", harness.PodOf(forker, suite.Command("calm", "sleep", "1000"), suite.Command("other", "sleep", "1000")).HostVolume("probe", dir, "/probe"))
	current, limit := pidsFile(t, m.Cgroup, "pids.current"), pidsFile(t, m.Cgroup, "pids.max")
	count := func() int {
		text, err := os.ReadFile(current)
		n, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || convErr != nil {
			t.Fatal(err, convErr)
		}
		return n
	}
	most := count() + 3
	if err := os.WriteFile(limit, []byte(strconv.Itoa(most)), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the cgroup is full", func() bool { return count() >= most })
	var ran atomic.Int32
	for i := range 6 {
		var commands sync.WaitGroup
		for range 12 {
			commands.Go(func() {
				if attempt(p, "calm", "true") == 0 {
					ran.Add(1)
				}
			})
		}
		commands.Wait()
		p.Launcher("kill", p.Name, "other") // which restarts, or does not
		if s := p.Status()["calm"]; s.Exited || s.PID == 0 {
			t.Errorf("status %d of the calm app: %+v", i, s)
		}
	}
	t.Logf("%d of 72 commands ran", ran.Load())
	within(t, "stop", time.Minute, func() { p.Stop() })
}
