package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	become()
	surroundings.SettleWithBuilt()
	os.Exit(m.Run())
}

// setting returns a setting of make inject, or another text if it is empty.
func setting(name, otherwise string) string { return cmp.Or(os.Getenv("INJECT_"+name), otherwise) }

// TestAFaultLeavesNothing injects faults into operations. By default it takes a part that lasts half a minute; make inject
// takes all. Settings: POINT is OPERATION/ROLE/CALL/INDEX/FAULT, each a regular expression, the last may be missing;
// EVERY takes one of each EVERY of them of an operation and role, at least one, FOR is how long the test goes on with new points, RESULTS a file
// with which a later test goes on, and WORKERS how many worlds there are at once.
func TestAFaultLeavesNothing(t *testing.T) {
	b := findBuilt(t)
	every, everyErr := strconv.Atoi(setting("EVERY", "120"))
	workers, workersErr := strconv.Atoi(setting("WORKERS", "2"))
	span, spanErr := time.ParseDuration(setting("FOR", "15m"))
	if everyErr != nil || workersErr != nil || spanErr != nil || every < 1 || workers < 1 {
		t.Fatalf("EVERY: %v; WORKERS: %v; FOR: %v", everyErr, workersErr, spanErr)
	}
	o := options{
		Built: b, Results: setting("RESULTS", filepath.Join(t.TempDir(), "results")), Point: setting("POINT", "image-.*|run-detach|rm|gc|exec|cp-.*|status|logs"), Every: every,
		Workers: workers, Until: time.Now().Add(span), Limit: surroundings.Patience,
	}
	if o.Results, everyErr = filepath.Abs(o.Results); everyErr != nil {
		t.Fatal(everyErr)
	}
	o.inject(t)
}

// mended are points at which a fault has once hung an operation, lost a log, or led to a wrong exit code.
func mended() []string {
	return []string{
		"stop/monitor|stager/openat-read|renameat|sendto/1|3|8/EMFILE|ENOSPC|ENOBUFS",
		"net-prune/command/umount2/1/EBUSY",
		"run-detach/init/clone3/1/KILL",
		"kill/callin/connect/1/KILL",
	}
}

// What was mended once stays so, whichever part TestAFaultLeavesNothing takes.
func TestAMendedFaultLeavesNothing(t *testing.T) {
	o := options{Built: findBuilt(t), Every: 1, Workers: 1, Until: time.Now().Add(15 * time.Minute), Limit: surroundings.Patience}
	for _, o.Point = range mended() {
		o.Results = filepath.Join(t.TempDir(), "results")
		if o.inject(t) == 0 {
			t.Errorf("%s: no point was tried", o.Point)
		}
	}
}

// inject tries the points that have no outcome yet, and returns how many have one now. A point that is not clean is an
// error of the test.
func (o options) inject(t *testing.T) int {
	t.Helper()
	var all sync.WaitGroup
	for i := range o.Workers {
		one := o
		one.Worker = i
		all.Go(func() { keepWorking(t, one) })
	}
	all.Wait()
	done, err := readResults(o.Results)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if done.table(&table, operations(o.Built)) > 0 {
		t.Fail()
	}
	t.Log("\n" + table.String())
	return len(done.outcomes)
}

// keepWorking starts a world until all points have an outcome: a world in which something is left is not used again.
func keepWorking(t *testing.T, o options) {
	for i := 0; ; i++ {
		o.Cgroup = fmt.Sprintf("kurma-inject-%d-%d-%d", os.Getpid(), o.Worker, i)
		text, err := json.Marshal(o)
		if err != nil {
			t.Error(err)
			return
		}
		cmd := newWorld(t.TempDir(), string(text))
		err = surroundings.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if groupErr := daemon.RemoveCgroup(o.Cgroup); groupErr != nil {
			t.Errorf("remove the world's cgroup: %v", groupErr)
		}
		if err == nil {
			return
		}
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != dirtyCode {
			t.Errorf("worker: %v", err)
			return
		}
	}
}

// findBuilt finds what is tested: by its variables, or in the repository.
func findBuilt(t *testing.T) built {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	aci := os.Getenv("STAGER_ACI")
	if aci == "" {
		found, _ := filepath.Glob(filepath.Join(top, "build/out", names.Program+"-*.aci"))
		aci = strings.Join(found, " ")
	}
	b := built{
		Bin: cmp.Or(os.Getenv("STAGER_BIN"), filepath.Join(top, "bin")), ACI: aci,
		Images: cmp.Or(os.Getenv("STAGER_IMAGES"), filepath.Join(top, "build/out/images")),
	}
	id, err := os.ReadFile(filepath.Join(b.Images, "busybox.id"))
	if err != nil {
		t.Fatalf("make aci images first: %v", err)
	}
	b.Busy = strings.TrimSpace(string(id))
	b.Client = build(t, top, "./cri/tests/client")
	b.Driver = build(t, filepath.Join(top, "netplugins"), "./remote/testdriver")
	return b
}

// build builds a program of a module.
func build(t *testing.T, module, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(name))
	cmd := exec.Command("go", "build", "-C", module, "-o", program, name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}
