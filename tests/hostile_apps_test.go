package tests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/hostile"
)

// hostileApp returns an app that runs a program of package hostile from the volume "probe".
func hostileApp(program string) harness.AppDoc {
	return suite.Command(program, "/probe/probe", program)
}

// An app that stops every process that starts in the pod delays the others, and hangs nothing: 14 apps
// come up, status and exec answer, a neighbour restarts, and the stop takes the grace period.
func TestAnAppStopsEveryNewProcess(t *testing.T) {
	b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "1s", "restart": "always"}`))
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	apps := []harness.AppDoc{hostileApp("stopper")}
	for i := range 13 {
		apps = append(apps, suite.Shell(fmt.Sprint("app", i), "exec sleep 1000"))
	}
	p := b.Up("p", harness.PodOf(apps...).HostVolume("probe", dir, "/probe"))
	for range 5 {
		within(t, "status", hostileStatus, func() { p.Status() })
		within(t, "exec", hostileExec, func() {
			harness.Eventually(t, "a command succeeds", func() bool { return attempt(p, "app3", "true") == 0 })
		})
	}
	before := p.Status()["app5"].PID
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "restart", hostileRestart, func() {
		harness.Eventually(t, "app5 runs again", func() bool { s := p.Status()["app5"]; return !s.Exited && s.PID != before && s.PID != 0 })
	})
	within(t, "stop", hostileStop, p.Stop)
}

// Limits of TestHostileApps. Apps may signal each other, so a start can be stopped and killed: it is tried again.
const (
	hostileStatus  = 5 * time.Second  // for each answer of status
	hostileExec    = 30 * time.Second // until a command in a neighbour succeeds
	hostileRestart = 60 * time.Second // until a neighbour that was killed runs again
	hostileStop    = 20 * time.Second // with a grace period of a second; a machine without other work takes less than one more
	hostileZombies = 200              // fewer of them wait to be collected, at some moment in each round
)

// hostilePod is a pod of programs of package hostile and of three neighbours, whose post-stop handlers write to
// the folder.
func hostilePod(b *harness.Machine, dir string, programs []string) *harness.Pod {
	b.T.Helper()
	var apps []harness.AppDoc
	for i := range 3 {
		name := fmt.Sprint("neighbour", i)
		app := suite.Shell(name, "exec sleep 100000")
		app.App.EventHandlers = []harness.HandlerDoc{{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "echo stopped >/probe/" + name}}}
		apps = append(apps, app)
	}
	for _, name := range programs {
		app := hostileApp(name)
		app.App.Isolators = []any{harness.Isolator("resource/memory", map[string]string{"limit": "128Mi"})}
		apps = append(apps, app)
	}
	p := b.Up("p", harness.PodOf(apps...).HostVolume("probe", dir, "/probe"))
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(hostile.Up)), nil, 0o644); err != nil {
		b.T.Fatal(err)
	}
	return p
}

// All hostile programs run as apps of one pod. Its neighbours restart, commands run in them, orphans are
// reaped, post-stop handlers run, and the pod stops, all within the limits above. HOSTILE_FOR is how long, for a pod with
// the host's users and for one with a user namespace. The latter does without the program that stops all new processes:
// its signals reach other apps in both.
func TestHostileApps(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("HOSTILE_FOR"), "30s"))
	if err != nil {
		t.Fatal(err)
	}
	const config = `{"gracePeriod": "1s", "restart": "always", "maxProcesses": {"app": 500, "pod": 3000}`
	programs := slices.Sorted(maps.Keys(hostile.Programs()))
	t.Run("host's users", func(t *testing.T) { checkHostile(t, config+`}`, programs, duration) })
	others := slices.DeleteFunc(slices.Clone(programs), func(name string) bool { return name == "stopper" })
	t.Run("own users", func(t *testing.T) {
		checkHostile(t, config+`, "userNamespace": {"hostID": "auto"}}`, others, duration)
	})
}

func checkHostile(t *testing.T, config string, programs []string, duration time.Duration) {
	t.Helper()
	b := suite.NewMachine(t, harness.StagerConfig(config))
	dir := b.Folder("probe", 0o777)
	testProgram(b, dir)
	p := hostilePod(b, dir, programs)
	longest := map[string]time.Duration{}
	limited := func(what string, limit time.Duration, f func()) {
		longest[what] = max(longest[what], within(t, what, limit, f))
	}
	streams := newCaller(t)
	rounds := 0
	for end := time.Now().Add(duration); time.Now().Before(end); rounds++ {
		name := fmt.Sprint("neighbour", rounds%3)
		limited("status", hostileStatus, func() { p.Status() })
		limited("exec", hostileExec, func() {
			harness.Eventually(t, "a command succeeds in "+name, func() bool { return attempt(p, name, "true") == 0 })
		})
		limited("exec in a hostile app", hostileExec, func() { attempt(p, "leaser", "true") })
		limited("exec of a hostile command", hostileExec, func() { streams.reopened(p, name) })
		limited("exec of a command that locks its streams", hostileExec, func() { attemptHolder(p, name) })
		limited("restart", hostileRestart, func() { restarts(p, name) })
		harness.Eventually(t, "orphans are reaped", func() bool { return zombies(p) < hostileZombies })
	}
	hostHasQueues(t)
	p.Note()
	limited("stop", hostileStop, func() { p.Must("stop", p.Name) })
	t.Log(rounds, "rounds, at most", longest)
	for i := range 3 {
		name := fmt.Sprint("neighbour", i)
		// One that an app has stopped is killed when it has had its time.
		killed := fmt.Sprintf("app=%s error=%q", name, "post-stop handler killed")
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil && !strings.Contains(p.StagerLog(), killed) {
			t.Errorf("post-stop: %v", err)
		}
	}
	if t.Failed() {
		t.Log(p.StagerLog())
	}
	p.Must("rm", p.Name)
	b.CheckGone()
}

// attempt runs a command in an app, and returns its exit status. A command that is not done after a moment has been
// stopped by an app, as apps may stop each other: it is given up.
func attempt(p *harness.Pod, app string, command ...string) int {
	p.T.Helper()
	return attemptTo(p, p.Command(append([]string{"exec", p.Name, app, "--"}, command...)...))
}

// attemptHolder runs a command that locks its streams, and kills its caller, which ends with its pipes.
func attemptHolder(p *harness.Pod, app string) {
	p.T.Helper()
	cmd := p.Command("exec", "--interactive", p.Name, app, "--", "/probe/probe", "holder")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Repeat("x", 1<<20)), new(bytes.Buffer), new(bytes.Buffer)
	attemptTo(p, cmd)
}

// attemptTo is attempt for a command of the launcher.
func attemptTo(p *harness.Pod, cmd *exec.Cmd) int {
	p.T.Helper()
	const moment = 5 * time.Second
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	defer time.AfterFunc(moment, func() { _ = cmd.Process.Kill() }).Stop()
	_ = cmd.Wait() // the exit status says it
	return cmd.ProcessState.ExitCode()
}

// hostHasQueues checks that programs of the host's user 0 have message queues left, beside apps of user 0 that take
// all that they may.
func hostHasQueues(t *testing.T) {
	t.Helper()
	for i := range 4 {
		name := fmt.Sprintf("stager-test-%d-%d", os.Getpid(), i)
		if err := hostile.MakeQueue(name); err != nil {
			t.Errorf("beside the apps: %v", err)
			return
		}
		defer func() { _ = hostile.RemoveQueue(name) }()
	}
}

// restarts kills an app's main process, and waits until another one runs.
func restarts(p *harness.Pod, app string) {
	p.T.Helper()
	before := p.Status()[app]
	if before.PID != 0 {
		_ = unix.Kill(before.PID, unix.SIGKILL) // it may have ended
	}
	harness.Eventually(p.T, app+" runs again", func() bool {
		s := p.Status()[app]
		return !s.Exited && s.PID != 0 && s.PID != before.PID
	})
}

// zombies returns how many children of init wait to be collected.
func zombies(p *harness.Pod) int {
	p.T.Helper()
	pid := p.Init()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		p.T.Fatal(err)
	}
	n := 0
	for _, child := range strings.Fields(string(text)) {
		stat, _ := os.ReadFile("/proc/" + child + "/stat") // it may have been collected
		if strings.Contains(string(stat), ") Z ") {
			n++
		}
	}
	return n
}

// Where the daemon limits the tasks of the stager's cgroup, an app that forks without end takes none that the
// supervisor needs: it goes on to start apps, and the pod stops.
func TestAForkerAtTheLimitOfTheStagersCgroup(t *testing.T) {
	t.Parallel()
	const limit, spare = 400, 64
	b := suite.NewMachine(t)
	forker := suite.Shell("forker", "while :; do (while :; do sleep 1000 & done) 2>/dev/null; done")
	doc := harness.DocumentOf(harness.PodOf(forker, suite.Shell("again", "echo again; exec sleep 0.1")), b.BusyboxLayer())
	doc["stagerConfig"] = map[string]any{"gracePeriod": "1s", "restart": "always"}
	d := b.Direct(doc, b.BusyboxLayer())
	limited := limitStager(d, limit, "pids.max")
	d.StartReady()
	tasks := func(cgroup string) int {
		text, err := os.ReadFile(filepath.Join(limited, cgroup, "pids.current"))
		n, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err = errors.Join(err, convErr); err != nil {
			t.Fatal(err)
		}
		return n
	}
	harness.Eventually(t, "the apps' cgroup is full", func() bool { return tasks("apps") >= 270 })
	// A start of the other app needs tasks among the apps', and mostly fails here.
	tried := func() int {
		return strings.Count(d.AppLog("again"), "stdout F again") + strings.Count(d.Messages(), `msg="app not started" app=again`)
	}
	before, most := tried(), 0
	harness.Eventually(t, "the supervisor starts the other app or reports why not", func() bool {
		most = max(most, tasks("."))
		return tried() >= before+4
	})
	if most > limit-spare {
		t.Errorf("%d of %d tasks were taken, want at least %d left to the supervisor", most, limit, spare)
	}
	d.Stop()
}

// eaterScript tries to make other processes the OOM killer's first choice, and fills its memory three times.
const eaterScript = `for score in /proc/[0-9]*/oom_score_adj; do echo 1000 >$score; done 2>/dev/null
	for i in 1 2 3; do tail /dev/zero; echo "ended $?"; done; exec sleep 1000`

// Where the daemon limits the memory of the stager's cgroup, an app that uses it up does not have the supervisor
// killed, or the pod's init.
func TestAnEaterAtTheLimitOfTheStagersCgroup(t *testing.T) {
	t.Parallel()
	const limit = 96 << 20
	b := suite.NewMachine(t)
	eater := suite.Shell("eater", eaterScript)
	doc := harness.DocumentOf(harness.PodOf(eater, suite.Shell("neighbour", "exec sleep 1000")), b.BusyboxLayer())
	doc["stagerConfig"] = map[string]any{"gracePeriod": "1s"}
	d := b.Direct(doc, b.BusyboxLayer())
	limitStager(d, limit, "memory.max", "memory.limit_in_bytes")
	d.StartReady()
	harness.Eventually(t, "the eater has been killed three times", func() bool { return strings.Count(d.AppLog("eater"), "stdout F ended 137") == 3 })
	d.Stop()
}

// Where the limit is that of a cgroup around the stager's, which the stager cannot see, as in a service with MemoryMax, the
// launcher gives it to the stager's cgroup: the supervisor is as safe there.
func TestAnEaterAtALimitAroundTheStagersCgroup(t *testing.T) {
	t.Parallel()
	const limit = 96 << 20
	b := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "1s"}`))
	parent := fmt.Sprintf("stager-test-%d", os.Getpid())
	t.Cleanup(func() {
		if err := daemon.RemoveCgroup(parent); err != nil {
			t.Error(err)
		}
	})
	limitCgroup(t, parent, limit, "memory.max", "memory.limit_in_bytes")
	doc := harness.PodOf(suite.Shell("eater", eaterScript), suite.Shell("neighbour", "exec sleep 1000"))
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "p", "--cgroup-parent", "/"+parent, b.Write("p.json", doc)))
	harness.Eventually(t, "the eater has been killed three times", func() bool {
		if unix.Kill(p.Stager, 0) != nil {
			t.Fatalf("the stager is gone: %s", p.StagerLog())
		}
		return strings.Count(p.Logs("eater"), "ended 137\n") == 3
	})
	p.Stop()
}

// limitStager makes the stager's cgroup with a limit in the first of the files that the machine has, and returns its
// folder.
func limitStager(d *harness.Direct, n int, files ...string) string {
	d.T.Helper()
	return limitCgroup(d.T, d.Plan.Cgroup, n, files...)
}

func limitCgroup(t testing.TB, cgroup string, n int, files ...string) string {
	t.Helper()
	mounts, err := daemon.Hierarchies()
	if err := errors.Join(err, daemon.MakeCgroup(cgroup)); err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, cgroup)
		for _, file := range files {
			if os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(n)), 0) == nil {
				return dir
			}
		}
	}
	t.Fatalf("the machine has none of %q", files)
	return ""
}

// within calls f, fails if it takes longer than limit, and returns how long it took.
func within(t *testing.T, what string, limit time.Duration, f func()) time.Duration {
	t.Helper()
	begin := time.Now()
	f()
	took := time.Since(begin)
	if took > limit {
		t.Errorf("%s took %s, want %s at most", what, took, limit)
	}
	return took
}
