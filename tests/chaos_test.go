package tests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// number returns the number in an environment variable, or another one if the variable is empty.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// graphStorages returns the union file systems that this machine has.
func graphStorages(t *testing.T) []string {
	t.Helper()
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	storages := []string{"overlay", "copy"}
	if strings.Contains(string(known), "\taufs\n") {
		storages = append(storages, "aufs")
	}
	return storages
}

// span is a command of the launcher that a kill interrupts, and how long the command takes without one.
type span string

const (
	spanStart  span = "start"
	spanRun    span = "run"
	spanExec   span = "exec"
	spanStop   span = "stop"
	spanImport span = "import"
)

// chaos is what the rounds of a test share.
type chaos struct {
	seed  uint64
	takes map[string]time.Duration // each span by its name and union file system

	mutex sync.Mutex
	kills map[string]int // guarded by mutex; by span and victim
}

// round is one kill: of a process that rng chooses, at a moment that rng chooses.
type round struct {
	*harness.Machine
	chaos   *chaos
	rng     *rand.Rand
	storage string
}

// chaosSpans are the spans of the rounds, in turn.
func chaosSpans() []span {
	return []span{spanStart, spanRun, spanExec, spanStop, spanStart, spanImport}
}

// TestNothingIsLeftAfterKillsAtRandom kills a random process at a random moment of a pod's start, run,
// stop and commands, and of an import, CHAOS times on the machine's union file systems in turn. Afterwards there
// is no process, mount, cgroup or namespace of the pod, and no file that `launcher gc` does not remove.
// CHAOSSEED repeats the choices of an earlier test; the moments are fractions of the time that the
// machine needs.
func TestNothingIsLeftAfterKillsAtRandom(t *testing.T) {
	t.Parallel()
	c := &chaos{
		seed:  number(t, "CHAOSSEED", uint64(time.Now().UnixNano())),
		takes: make(map[string]time.Duration), kills: make(map[string]int),
	}
	t.Logf("CHAOSSEED=%d", c.seed)
	storages := graphStorages(t)
	for _, storage := range storages {
		c.measure(t, storage)
	}
	t.Run("round", func(t *testing.T) {
		for i := range number(t, "CHAOS", 24) {
			storage := storages[i%uint64(len(storages))]
			what := chaosSpans()[i/uint64(len(storages))%uint64(len(chaosSpans()))]
			t.Run(fmt.Sprintf("%d %s %s", i, storage, what), func(t *testing.T) {
				t.Parallel()
				r := c.round(t, storage, what, rand.New(rand.NewPCG(c.seed, i)))
				r.kill(what)
			})
		}
	})
	for _, kill := range slices.Sorted(maps.Keys(c.kills)) {
		t.Logf("%4d × %s", c.kills[kill], kill)
	}
}

// round returns a round on a machine of its own.
func (c *chaos) round(t *testing.T, storage string, what span, rng *rand.Rand) *round {
	options := []harness.Option{harness.StagerConfig(fmt.Sprintf(`{"graphStorage": %q, "gracePeriod": "5s"}`, storage))}
	if what == spanImport {
		options = append(options, harness.OwnStore())
	}
	return &round{Machine: suite.NewMachine(t, options...), chaos: c, rng: rng, storage: storage}
}

// doc is a pod whose start and stop have many steps, in the host's PID namespace in one of four rounds.
func (r *round) doc() harness.PodDoc {
	busy := suite.Shell("a", "(setsid sleep 1000 &); sleep 1000 & exec sleep 1000")
	busy.App.EventHandlers = []harness.HandlerDoc{
		{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "sleep 0.01"}}, {Name: "post-stop", Exec: []string{"/bin/sh", "-c", "sleep 0.01"}},
	}
	doc := harness.PodOf(busy, suite.Shell("b", "echo x >/scratch/x; exec sleep 1000"))
	doc.Volumes = []harness.VolumeDoc{{Name: "scratch", Kind: "empty"}}
	doc.Apps[1].Mounts = []any{harness.MountDoc{Volume: "scratch", Path: "/scratch"}}
	if r.rng.IntN(4) == 0 {
		doc.Isolators = []any{harness.Isolator("os/linux/namespaces", map[string]string{"pid": "host"})}
	}
	return doc
}

// measure runs each command once without a kill.
func (c *chaos) measure(t *testing.T, storage string) {
	t.Helper()
	took := func(what span, run func()) {
		began := time.Now()
		run()
		c.takes[string(what)+storage] = time.Since(began)
	}
	r := c.round(t, storage, spanImport, rand.New(rand.NewPCG(0, 0)))
	took(spanImport, func() { r.Must("image", "import", r.busyboxFile()) })
	r.LayersAreNow()
	var p *harness.Pod
	took(spanStart, func() { p = r.Up("p", r.doc()) })
	took(spanExec, func() { p.Exec("a", "true") })
	c.takes[string(spanRun)+storage] = c.takes[string(spanExec)+storage]
	took(spanStop, func() { p.Must("stop", "p") })
	p.Must("rm", "p")
}

func (r *round) busyboxFile() string { return filepath.Join(suite.Images, "busybox.aci") }

// kill is the whole round.
func (r *round) kill(what span) {
	switch what {
	case spanImport:
		r.killImport()
	case spanStart:
		r.killStart()
	case spanExec:
		r.killCommand()
	default:
		r.killPod(what)
	}
}

// start starts a command of the launcher. The test's end waits for it.
func (r *round) start(args ...string) *exec.Cmd {
	r.T.Helper()
	cmd := r.Command(args...)
	if err := cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	return cmd
}

// strike kills one of the victims at a moment within the span, waits for the command, if there is one, and
// returns the victim's role.
func (r *round) strike(what span, cmd *exec.Cmd, victims func() []int) (role string) {
	r.T.Helper()
	<-time.After(time.Duration(r.rng.Float64() * float64(r.chaos.takes[string(what)+r.storage])))
	if what == spanStart {
		r.Note()
	}
	pids := victims()
	role = r.killOne(pids[r.rng.IntN(len(pids))])
	r.T.Logf("killed %s", role)
	r.chaos.mutex.Lock()
	r.chaos.kills[fmt.Sprintf("%s %s: %s", r.storage, what, role)]++
	r.chaos.mutex.Unlock()
	if cmd == nil {
		return role
	}
	if role == roleEnded || role == roleForked {
		_ = cmd.Process.Kill() // a command that may not end by itself
	}
	late := time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // it may have failed
	if !late.Stop() {
		r.T.Errorf("launcher %v does not end after the kill of %s", cmd.Args[5:], role)
	}
	return role
}

// killOne kills a process and returns its role. The descriptor makes sure that the process with that role is
// the one that is killed.
func (r *round) killOne(pid int) (role string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return roleEnded
	}
	defer unix.Close(fd)
	if role = r.roleOf(pid); role != roleEnded {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended since
	}
	return role
}

// chain returns a process and the first child of each, down to init.
func chain(pid int) []int {
	pids := []int{pid}
	for len(pids) < 4 {
		children := childrenOf(pids[len(pids)-1])
		if len(children) == 0 {
			break
		}
		pids = append(pids, children[0])
	}
	return pids
}

// childrenOf returns the children of all of a process's threads.
func childrenOf(pid int) []int {
	var pids []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // an ended process has none
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

const (
	roleEnded      = "ended process"
	roleForked     = "child before its exec" // of launcher or supervisor; Go also forks one to look at the kernel's pidfds
	roleSupervisor = "supervisor"
	roleInit       = "init"
	roleMonitor    = "monitor"
	roleCallIn     = "call-in"
)

// roleOf names a process of the machine by its command line. Any other process is roleEnded, as is one that
// ends meanwhile.
func (r *round) roleOf(pid int) string {
	read := func(pid, name string) string {
		text, _ := os.ReadFile("/proc/" + pid + "/" + name) // "" of an ended process
		return string(text)
	}
	self := strconv.Itoa(pid)
	line, environ, cgroup := read(self, "cmdline"), read(self, "environ"), read(self, "cgroup")
	parentOf := func(pid string) string {
		_, parent, _ := strings.Cut(read(pid, "status"), "\nPPid:\t")
		parent, _, _ = strings.Cut(parent, "\n")
		return parent
	}
	parent := parentOf(self)
	if parent == "" {
		return roleEnded
	}
	words := strings.Split(strings.TrimSuffix(line, "\x00"), "\x00")
	isLauncher := slices.Contains(words, r.Dir)
	isStager := strings.Contains(cgroup, "/"+r.Cgroup+"/") && len(words) == 1 && filepath.Base(words[0]) == names.Program
	forked := read(parent, "cmdline") == line && read(parent, "environ") == environ
	if isStager && forked && read(parentOf(parent), "cmdline") != line { // init is a fork of the supervisor
		return roleInit
	}
	if (isLauncher || isStager) && forked {
		return roleForked
	}
	switch {
	case isLauncher && slices.Contains(words, "monitor"):
		return roleMonitor
	case isLauncher:
		return "launcher " + words[slices.Index(words, r.Dir)+1] // see command
	case strings.HasPrefix(words[0], names.CallInDir):
		return roleCallIn
	case isStager:
		return roleSupervisor
	}
	return roleEnded
}
