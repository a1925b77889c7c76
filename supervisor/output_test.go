package supervisor_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/children"
	"kurma.io/stager/tests/surroundings"
)

// counter counts bytes and reads.
type counter struct{ bytes, writes int }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	c.writes++
	return len(p), nil
}

// badDisk is a log that cannot be written.
type badDisk struct{}

func (badDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestShortLivedAppsLoseNoOutput(t *testing.T) {
	b := newFakes(t)
	var apps []App
	var logs []*log
	for i := range 500 {
		out := newLog()
		logs = append(logs, out)
		apps = append(apps, App{Name: fmt.Sprint("app", i), Main: b.sh(fmt.Sprint("echo line ", i)), Stdout: out})
	}
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: apps})
	if code, err := pod.wait(); code != 0 || err != nil {
		t.Fatalf("Run() = %d, %v", code, err)
	}
	for i, out := range logs {
		if got, want := out.String(), fmt.Sprintf("line %d\n", i); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOutputIsComplete(t *testing.T) {
	b := newFakes(t)
	for _, test := range []struct {
		name, script string
		terminal     bool
		out, errs    int
	}{
		{"1 MB without newline", "head -c 1048576 /dev/zero", false, 1 << 20, 0},
		{"50 MB on both", "head -c 50000000 /dev/zero >&2 & head -c 50000000 /dev/zero; wait", false, 50000000, 50000000},
		{"terminal", "head -c 100000 /dev/zero", true, 100000, 0},
		{"terminal, both", "echo a; echo b >&2", true, 6, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs counter
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
				Name: "app", Terminal: test.terminal,
				Main: b.sh(test.script), Stdout: &out, Stderr: &errs,
			}}})
			if _, err := pod.wait(); err != nil {
				t.Fatal(err)
			}
			if out.bytes != test.out || errs.bytes != test.errs {
				t.Errorf("%d and %d bytes, want %d and %d", out.bytes, errs.bytes, test.out, test.errs)
			}
		})
	}
}

func TestAFullDiskDoesNotStopTheApp(t *testing.T) {
	b := newFakes(t)
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
		Name: "app",
		Main: b.sh("head -c 1000000 /dev/zero; exit 3"), Stdout: badDisk{},
	}}})
	if code, err := pod.wait(); code != 3 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
}

// A process outside the app's cgroup holds the pipe.
func TestForeignWriterDoesNotKeepARunOpen(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	var foreign int
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{Name: "app", Stdout: out, Main: func() (spec.Container, error) {
		return b.sh("sleep 1000 & echo $! > " + b.dir + "/cgroup.procs; echo $!")()
	}}}})
	if _, err := pod.wait(); err != nil {
		t.Error(err)
	}
	if _, err := fmt.Sscan(out.String(), &foreign); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	process, err := os.FindProcess(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Error(err)
	}
	children.AwaitNone(t)
}

func TestGivenFilesTakeTheStreamsPlaces(t *testing.T) {
	b := newFakes(t)
	in, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	read, write := outputPipe(t)
	out, errs := newLog(), newLog()
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
		Name: "app", Stdin: in, OutFile: write,
		Stdout: out, Stderr: errs, Main: b.sh("cat; echo logged >&2"),
	}}})
	if _, err := io.WriteString(input, "through"); err != nil {
		t.Fatal(err)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.wait(); err != nil {
		t.Error(err)
	}
	if err := write.Close(); err != nil { // it was left open
		t.Error(err)
	}
	got, err := io.ReadAll(read)
	if string(got) != "through" || err != nil || out.String() != "" || errs.String() != "logged\n" {
		t.Errorf("%q, %v, log %q and %q", got, err, out, errs)
	}
}

// openTerminal opens a terminal, which takes some kilobytes until its master is read.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); terminal.Close() })
	return master, terminal
}

// A file of the daemon that takes no output, such as a terminal that is stopped, keeps no pod from its end.
func TestAPodEndsAlthoughItsOutputIsNotTaken(t *testing.T) {
	t.Parallel() // it waits for a limit
	b := newFakes(t)
	master, terminal := openTerminal(t)
	log, written := newLog(), filepath.Join(t.TempDir(), "written")
	pod := start(t, Config{Log: slog.New(slog.NewTextHandler(log, nil)), Apps: []App{{
		Name: "app", OutFile: terminal, Main: b.sh("head -c 50000 /dev/zero; : >" + written + "; sleep 1000"), // as much as a pipe takes
	}}})
	surroundings.Eventually(t, "the app has written", func() bool {
		_, err := os.Stat(written)
		return err == nil
	})
	if _, err := master.Read(make([]byte, 1)); err != nil { // the rest stays
		t.Error(err)
	}
	if _, err := pod.up().stopped(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "last output of app is not taken") {
		t.Errorf("logged %s", log)
	}
}

// An app is started again when what it has written last is taken: each run that is not holds its descriptors.
func TestARestartWaitsForTheLastOutput(t *testing.T) {
	t.Parallel() // it waits for a limit
	b := newFakes(t)
	master, terminal := openTerminal(t)
	log := newLog()
	pod := start(t, Config{Log: slog.New(slog.NewTextHandler(log, nil)), Restart: spec.RestartPolicy{AfterFailure: true, AfterSuccess: true}, Apps: []App{{
		Name: "app", OutFile: terminal, Main: b.sh("head -c 100000 /dev/zero"),
	}}})
	surroundings.Eventually(t, "the restart waits", func() bool {
		return strings.Contains(log.String(), "restart waits until the app's last output is taken")
	})
	if n := strings.Count(log.String(), "app started"); n != 1 {
		t.Errorf("%d runs have started", n)
	}
	go func() { _, _ = io.Copy(io.Discard, master) }()
	surroundings.Eventually(t, "the app is started again", func() bool { return strings.Count(log.String(), "app started") > 1 })
	if _, err := pod.stopped(); err != nil {
		t.Error(err)
	}
}

// A log that takes no output of an event handler keeps no pod from its end.
func TestAPodEndsAlthoughItsHandlersOutputIsNotTaken(t *testing.T) {
	t.Parallel() // it waits for a limit
	b := newFakes(t)
	released := make(chan struct{})
	defer close(released)
	log := newLog()
	pod := start(t, Config{Log: slog.New(slog.NewTextHandler(log, nil)), Apps: []App{{
		Name: "app", Stdout: stuckLog{released}, PreStart: b.sh("echo before"), Main: b.sh("sleep 1000"),
	}}})
	surroundings.Eventually(t, "the app is started", func() bool { return strings.Contains(log.String(), "app started") })
	if _, err := pod.stopped(); err != nil {
		t.Error(err)
	}
}

// stuckLog takes nothing until it is released.
type stuckLog struct{ released chan struct{} }

func (l stuckLog) Write(p []byte) (int, error) {
	<-l.released
	return len(p), nil
}

func TestStdinIsEmptyUnlessOpen(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{Name: "app", Stdout: out, Main: b.sh("cat; echo end")}}})
	if _, err := pod.wait(); err != nil || out.String() != "end\n" {
		t.Errorf("%q, %v", out, err)
	}
}
