package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/surroundings"
)

// usage is what a process uses.
type usage struct {
	anonymous, descriptors, threads int // KiB, and numbers
}

// usageOf reads the usage of a process.
func usageOf(t *testing.T, pid int) usage {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatalf("%s of process %d: %v", name, pid, err)
		}
		return n
	}
	return usage{field("RssAnon"), len(fds), field("Threads")}
}

// These are limits of what the supervisor or init may use in addition, however many orphans or commands there were: Go's
// heap and threads follow the load for a while.
const (
	moreMemory      = 8 << 10 // KiB
	moreThreads     = 16
	moreDescriptors = 4 // what the supervisor opens when it needs it first
)

// checkFlat compares a process's usage with an earlier one. A descriptor of a command that has just
// ended may still be open.
func checkFlat(p *harness.Pod, pid int, what string, before usage) {
	p.T.Helper()
	var after usage
	surroundings.Eventually(p.T, "descriptors and threads after "+what, func() bool {
		after = usageOf(p.T, pid)
		return after.descriptors <= before.descriptors+moreDescriptors && after.threads <= before.threads+moreThreads
	})
	p.T.Logf("after %s: %+v, before %+v", what, after, before)
	if after.anonymous > before.anonymous+moreMemory {
		p.T.Errorf("after %s process %d uses %d KiB, before %d KiB", what, pid, after.anonymous, before.anonymous)
	}
}

// An app leaves ORPHANS (5,000) orphans to init, which collects them all and needs no more memory,
// descriptors or threads than before.
func TestOrphansCostInitNothing(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	count := number(t, "ORPHANS", 5_000)
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(dir + "/up")
	// Each subshell ends before its child.
	script := `make() { i=0; while [ $i -lt $1 ]; do (: & :); i=$((i+1)); done; }
		make 1000; echo warm >/sync/up; read go </sync/go; make $((` + strconv.FormatUint(count, 10) + `/2)) & make $((` + strconv.FormatUint(count, 10) + `/2)); wait; echo made >/sync/up; exec sleep 1000`
	goOn := b.SignalPipe(dir + "/go")
	p := b.Up("p", harness.PodOf(suite.Shell("a", script)).HostVolume("sync", dir, "/sync"))
	up.Line()
	init := p.Init()
	before := usageOf(t, init)
	if _, err := goOn.File.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	up.LineWithin(harness.Patience + time.Duration(count)*30*time.Millisecond)
	t.Logf("%d orphans in %s", count, time.Since(began))
	harness.Eventually(t, "no zombie is left", func() bool { return len(childrenOf(init)) == 1 })
	checkFlat(p, init, fmt.Sprintf("%d orphans", count), before)
	p.Stop()
}

// The call-in run is called RUNS (200) times, four at once, and the supervisor needs no more memory,
// descriptors or threads than before.
func TestCommandsCostTheSupervisorNothing(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "while :; do sleep 1000; done")))
	runMany(p, 100) // Go's heap and threads grow with the first ones
	before := usageOf(t, p.Stager)
	count := number(t, "RUNS", 200)
	began := time.Now()
	runMany(p, count)
	t.Logf("%d commands in %s", count, time.Since(began))
	checkFlat(p, p.Stager, fmt.Sprintf("%d commands", count), before)
	p.Stop()
}

// runMany calls the call-in run so often, from four processes.
func runMany(p *harness.Pod, count uint64) {
	p.T.Helper()
	text, err := json.Marshal(asRoot("exit 7"))
	if err != nil {
		p.T.Fatal(err)
	}
	// The shell is the host's: the stager's root has none. It enters for each call-in.
	loop := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do "$program" "$@" 3<"$settings"; [ $? = 7 ] || exit 1; i=$((i+1)); done`, (count+3)/4)
	settings := p.Write("settings", string(text))
	program, err := os.Executable()
	if err != nil {
		p.T.Fatal(err)
	}
	var all []*exec.Cmd
	for range 4 {
		call := p.CallIn("run", "a")
		cmd := exec.Command("sh", append([]string{"-c", loop, "sh"}, call.Args[1:]...)...)
		cmd.Env = append(call.Env, "program="+program, "settings="+settings)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			p.T.Fatal(err)
		}
		all = append(all, cmd)
	}
	late := time.AfterFunc(harness.Patience+time.Duration(count)*time.Second, func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
		}
	})
	defer late.Stop()
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			p.T.Errorf("call-ins: %v", err)
		}
	}
	if p.T.Failed() {
		p.T.Logf("stager's log:\n%s", p.StagerLog())
	}
}
