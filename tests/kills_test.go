package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/poll"
)

// runTime is how long a pod of these tests is up before it is stopped.
const runTime = 50 * time.Millisecond

// killed is what the rounds of a test share.
type killed struct {
	takes map[string]time.Duration   // the last pod to be up, and a pod to stop
	took  map[string][]time.Duration // how long processes have outlived a kill
}

// The phases of a pod.
const (
	starts = "starts"
	runs   = "runs"
	stops  = "stops"
)

// TestNoProcessOutlivesTheSupervisorOrInit kills the supervisor or the init of a pod at a random moment between the
// stager's exec and its end, KILLS times, in the host's PID namespace in one of four rounds, and in a strait (straits) in
// every second. The daemon is the test: no launcher helps to end the pod. Afterwards there is no process, mount or cgroup of the pod. The test logs how long its
// processes have outlived the kill. KILLSSEED repeats the choices of an earlier test.
func TestNoProcessOutlivesTheSupervisorOrInit(t *testing.T) {
	seed := number(t, "KILLSSEED", uint64(time.Now().UnixNano()))
	t.Logf("KILLSSEED=%d", seed)
	k := &killed{takes: map[string]time.Duration{runs: runTime}, took: make(map[string][]time.Duration)}
	k.measure(t)
	for i := range number(t, "KILLS", 12) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { k.round(t, rand.New(rand.NewPCG(seed, i))) })
	}
	var all []time.Duration
	for _, what := range slices.Sorted(maps.Keys(k.took)) {
		t.Logf("%-36s %s", what, distribution(k.took[what]))
		all = append(all, k.took[what]...)
	}
	t.Logf("%-36s %s", "all", distribution(all))
}

// shortPod is a pod of three apps. One locks the pipe of its output for ever once it runs: nobody types on the terminal,
// from which BusyBox's cat copies by sendfile(2).
func shortPod(b *harness.Machine, hosts bool) *harness.Direct {
	doc := harness.PodOf(suite.Command("idle", "cat", "/dev/ptmx"), suite.Shell("a", "(setsid sleep 1000 &); sleep 1000 & exec sleep 1000"),
		suite.Shell("b", "echo x >/scratch/x; exec sleep 1000"))
	doc.Volumes = []harness.VolumeDoc{{Name: "scratch", Kind: "empty"}}
	doc.Apps[2].Mounts = []any{harness.MountDoc{Volume: "scratch", Path: "/scratch"}}
	if hosts {
		doc.Isolators = []any{harness.Isolator("os/linux/namespaces", map[string]string{"pid": "host"})}
	}
	return b.Direct(harness.DocumentOf(doc, b.BusyboxLayer()), b.BusyboxLayer())
}

// begin starts a stager with a ready pipe, and returns when it is the stager's program.
func begin(d *harness.Direct) time.Time {
	read, write := d.Pipe()
	d.Ready = read
	d.Start(nil, write)
	_ = write.Close()
	harness.Eventually(d.T, "the stager", func() bool {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.Cmd.Process.Pid)) // of a process that has ended: nothing
		return filepath.Base(string(bytes.TrimRight(line, "\x00"))) == names.Program
	})
	return time.Now()
}

func (k *killed) measure(t *testing.T) {
	d := shortPod(suite.NewMachine(t), false)
	began := begin(d)
	d.WaitReady()
	k.takes[starts] = time.Since(began)
	began = time.Now()
	d.Stop()
	k.takes[stops] = time.Since(began)
	t.Logf("without a kill the pod is up after %s, and stops within %s", k.takes[starts], k.takes[stops])
}

// round kills one pod.
func (k *killed) round(t *testing.T, rng *rand.Rand) {
	hosts, victim := rng.IntN(4) == 0, []string{roleSupervisor, roleInit}[rng.IntN(2)]
	phase := []string{starts, starts, starts, runs, stops}[rng.IntN(5)]
	d := shortPod(suite.NewMachine(t), hosts)
	at, began := rng.Float64(), begin(d)
	if phase != starts {
		d.WaitReady()
		k.takes[starts] = time.Since(began)
		began = time.Now()
	}
	if phase == stops {
		<-time.After(runTime)
		_ = d.Cmd.Process.Signal(unix.SIGTERM)
		began = time.Now()
	}
	<-time.After(time.Until(began.Add(time.Duration(at * float64(k.takes[phase])))))
	what := fmt.Sprintf("%s, pod %s", victim, phase)
	if hosts {
		what += ", host's PIDs"
	}
	d.Note()
	relieve := func() {}
	if strait := rng.IntN(2 * len(straits)); strait < len(straits) {
		what = fmt.Sprintf("%s, %s", victim, straits[strait].name)
		var found bool
		if relieve, found = straits[strait].begin(d.Plan.Cgroup); !found {
			t.Errorf("the pod's cgroup %s has no file for %s", d.Plan.Cgroup, straits[strait].name)
		}
	}
	began = time.Now()
	if victim == roleSupervisor || !killInit(d) {
		_ = d.Cmd.Process.Kill() // a pod that stops may have ended
	}
	relieve()
	var left []string
	none := func() bool { left = processesIn(d.Plan.Cgroup); return len(left) == 0 }
	if !poll.Until(harness.Patience, time.Millisecond/2, none) {
		t.Errorf("%s after the kill of the %s of a pod that %s there are the processes %q", harness.Patience, victim, phase, left)
	}
	k.took[what] = append(k.took[what], time.Since(began))
	d.Wait()
	d.CheckProcesses()
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), d.Plan.Root) {
		t.Errorf("left mounted on the host: %v\n%s", err, mounts)
	}
}

// straits are states of a pod's cgroup in which it has to end all the same. begin returns what is done after the kill,
// and whether the cgroup has the files.
var straits = []struct {
	name  string
	begin func(cgroup string) (relieve func(), found bool)
}{
	{"full memory", func(cgroup string) (func(), bool) {
		old := limitToUsage(cgroup, "memory.usage_in_bytes", "memory.limit_in_bytes")
		return func() {}, limitToUsage(cgroup, "memory.current", "memory.max") || old
	}},
	{"used-up tasks", func(cgroup string) (func(), bool) {
		return func() {}, limitToUsage(cgroup, "pids.current", "pids.max")
	}},
	{"frozen", func(cgroup string) (func(), bool) {
		// Version 1 keeps a killed process until the cgroup is thawed. With both versions it alone has the processes.
		if writeOfCgroup(cgroup, "freezer.state", "FROZEN") {
			return func() { writeOfCgroup(cgroup, "freezer.state", "THAWED") }, true
		}
		return func() {}, writeOfCgroup(cgroup, "cgroup.freeze", "1")
	}},
}

// limitToUsage limits a cgroup to what it uses, and returns whether a hierarchy has the files.
func limitToUsage(cgroup, usage, limit string) (found bool) {
	for _, dir := range cgroupDirs(cgroup) {
		if used, err := os.ReadFile(filepath.Join(dir, usage)); err == nil {
			found = true
			_ = os.WriteFile(filepath.Join(dir, limit), bytes.TrimSpace(used), 0) // EBUSY: more is used meanwhile
		}
	}
	return found
}

// writeOfCgroup writes a file of a cgroup, and reports whether a hierarchy has it.
func writeOfCgroup(cgroup, name, value string) bool {
	for _, dir := range cgroupDirs(cgroup) {
		if os.WriteFile(filepath.Join(dir, name), []byte(value), 0) == nil {
			return true
		}
	}
	return false
}

// cgroupDirs returns the folders of a cgroup.
func cgroupDirs(cgroup string) (dirs []string) {
	mounts, _ := daemon.Hierarchies() // the pod was started with them
	for _, mount := range mounts {
		dirs = append(dirs, filepath.Join(mount, cgroup))
	}
	return dirs
}

// killInit kills the init, or the process that becomes it. It returns false if there is none.
func killInit(d *harness.Direct) bool {
	children := lifelineOf(d)
	if len(children) == 0 {
		return false
	}
	last := children[len(children)-1] // init comes after the process that makes it
	fd, err := unix.PidfdOpen(last, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !slices.Contains(lifelineOf(d), last) { // another process has its number
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// lifelineOf returns the children of the lifeline's thread, which is the supervisor's second.
func lifelineOf(d *harness.Direct) (children []int) {
	dir := fmt.Sprintf("/proc/%d/task", d.Cmd.Process.Pid)
	threads, _ := os.ReadDir(dir) // none of a supervisor that has ended
	if len(threads) < 2 {
		return nil
	}
	slices.SortFunc(threads, func(a, b os.DirEntry) int {
		return cmp.Or(len(a.Name())-len(b.Name()), strings.Compare(a.Name(), b.Name()))
	})
	text, _ := os.ReadFile(filepath.Join(dir, threads[1].Name(), "children"))
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// processesIn returns the processes of a cgroup and of those in it, as the kernel lists them.
func processesIn(group string) (found []string) {
	for _, dir := range cgroupDirs(group) {
		_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Name() == "cgroup.procs" { // a group may go meanwhile
				text, _ := os.ReadFile(path)
				found = append(found, strings.Fields(string(text))...)
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// distribution returns words about times.
func distribution(took []time.Duration) string {
	slices.Sort(took)
	if len(took) == 0 {
		return "none"
	}
	at := func(part float64) time.Duration {
		return took[int(part*float64(len(took)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%4d kills: min %s, median %s, p90 %s, p99 %s, max %s", len(took), at(0), at(.5), at(.9), at(.99), at(1))
}
