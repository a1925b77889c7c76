package tests

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// An app writes as fast as it can, far more than the log keeps. The app is never
// blocked for good, and the log is bounded, complete and in order.
func TestTheLogOfAFastWriterIsBounded(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"log": {"maxSize": "256Ki", "maxFiles": 3}}`))
	const lines = 200000
	p := b.Up("p", harness.PodOf(suite.Command("fast", "seq", "1", fmt.Sprint(lines)), suite.Shell("raw", "head -c 300000 /dev/zero | tr '\\0' x")))
	if code, _ := p.Exited("fast"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	kept := strings.Fields(p.Logs("fast"))
	if len(kept) == 0 || kept[len(kept)-1] != fmt.Sprint(lines) {
		t.Fatalf("the last of %d lines kept is not the last", len(kept))
	}
	// The oldest line may be incomplete, if its start was in a file that was removed.
	for i, line := range kept[1:] {
		if want := fmt.Sprint(lines - len(kept) + i + 2); line != want {
			t.Fatalf("line %q, want %s", line, want)
		}
	}
	files, err := filepath.Glob(filepath.Join(p.Dir, "logs/fast/*"))
	if err != nil || len(files) == 0 || len(files) > 4 {
		t.Errorf("log files %q, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 512<<10 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	p.Exited("raw")
	if log := p.Logs("raw"); log != strings.Repeat("x", 300000) {
		t.Errorf("of a line of 300000 bytes %d came back", len(log))
	}
	p.Stop()
}

// The stager's own log loses its older half at log.maxSize, and has its newest lines.
func TestTheStagersOwnLogIsBounded(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"log": {"maxSize": "2Mi"}}`))
	p := b.Up("p", harness.PodOf(suite.Command("a", "sleep", "1000")))
	log, err := os.OpenFile(filepath.Join(p.Dir, "stager.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := io.WriteString(log, strings.Repeat("a line of another time\n", 3<<20/23)); err != nil {
		t.Fatal(err)
	}
	b.Must("kill", "p") // the stager logs the app's end
	var text string
	harness.Eventually(t, "the log is cut, and has the app's end", func() bool {
		text = p.StagerLog()
		return len(text) <= 1<<20+4096 && strings.Contains(text, `msg="app ended"`)
	})
	text = p.StagerLog() // the read before may have begun before the cut
	if !strings.HasPrefix(text, "a line of another time\n") {
		t.Errorf("the log is now %.100q…", text)
	}
	p.Stop()
}

// The test fills the disk of the pods' folder: the app goes on, and the stager logs it once.
func TestAppsGoOnWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, func(b *harness.Machine) { b.Pods = filepath.Join(b.Dir, "disk/pods") })
	b.MountTmpfs(b.Folder("disk", 0o700), "size=24m")
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	// The launcher has written the pod's state before the app writes anything.
	script := `while ! [ -e /sync/fill ]; do sleep 0.02; done; seq 1 2000000; echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.02; done; seq 1 1000; echo again >/sync/up; exec sleep 1000`
	p := b.Up("p", harness.PodOf(suite.Shell("a", script)).HostVolume("sync", dir, "/sync"))
	if err := os.WriteFile(filepath.Join(dir, "fill"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(p.Dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for err = nil; err == nil; {
		_, err = fill.Write(make([]byte, 64<<10))
	}
	up.Line()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	up.Line()
	if s := p.Status()["a"]; s.Exited {
		t.Errorf("the app has ended: %+v", s)
	}
	// The stager's own log is on the same disk.
	if err := os.Remove(filepath.Join(p.Dir, "fill")); err != nil {
		t.Fatal(err)
	}
	fill.Close()
	r := p.Exec("a", "true")
	if r.Code != 0 {
		t.Errorf("run: %+v", r)
	}
	if n := strings.Count(p.StagerLog(), "no space left"); n > 2 {
		t.Errorf("the full disk is mentioned %d times", n)
	}
	p.Stop()
}

// The test does not read the stager's own output.
func TestAnUnreadStagerLogDelaysNothing(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	read, write := b.Pipe()
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	_ = read // never read
	var apps []harness.AppDoc
	for i := range 40 {
		apps = append(apps, suite.Shell(fmt.Sprint("app", i), "exec sleep 1000"))
	}
	d := b.Direct(harness.DocumentOf(harness.PodOf(apps...), b.BusyboxLayer()), b.BusyboxLayer())
	d.Output = write
	d.StartReady()
	write.Close()
	d.Stop()
}

// When a detached pod has ended, its apps' logs can be read until gc; gc leaves nothing.
func TestLogsOutliveTheirPod(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"exitPolicy": "all"}`))
	dir := b.Folder("sync", 0o777)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "while ! [ -e /sync/go ]; do sleep 0.02; done; echo last; printf words >&2; exit 3")).HostVolume("sync", dir, "/sync"))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pod has ended", func() bool { return b.PS()[0].State == "exited" })
	if r := b.Launcher("logs", "p"); r.Code != 0 || r.Stdout != "last\n" || r.Stderr != "words" {
		t.Errorf("logs: %+v", r)
	}
	if r := b.Launcher("logs", "--follow", "--stream", "stderr", "p", "a"); r.Code != 0 || r.Stdout != "" || r.Stderr != "words" {
		t.Errorf("logs --follow: %+v", r)
	}
	if _, err := os.Stat(p.Root("")); err == nil {
		t.Error("the stager's root is left")
	}
	b.Must("gc")
	b.CheckGone()
}

// If the reader of the logs of an ended pod stops reading, a signal ends the launcher.
func TestASignalEndsUnreadLogs(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"exitPolicy": "all"}`))
	dir := b.Folder("sync", 0o777)
	b.Up("ended", harness.PodOf(suite.Shell("a", "while ! [ -e /sync/go ]; do sleep 0.02; done; seq 100000")).HostVolume("sync", dir, "/sync"))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pod has ended", func() bool { return b.PS()[0].State == "exited" })
	for _, args := range [][]string{{"logs", "ended"}, {"logs", "--json", "ended"}} {
		cmd := b.Command(args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		mustSignal(t, cmd.Process.Pid, unix.SIGTERM)
		// Not Wait, which would close the pipe.
		state, err := cmd.Process.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if status := state.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != unix.SIGTERM {
			t.Errorf("%q: %v", args, state)
		}
		out.Close()
	}
	b.Must("gc")
	b.CheckGone()
}

// The log keeps what apps and their handlers write to either stream, byte for byte, for running and
// for ended apps.
func TestBothStreamsAreKept(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	t.Parallel()
	b := suite.NewMachine(t)
	ended := suite.Shell("ended", `printf 'out \000\377\r\n'; echo err >&2; echo more; printf 'no end' >&2; exit 7`)
	ended.App.EventHandlers = []harness.HandlerDoc{
		{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "echo before; echo before err >&2"}},
		{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "echo; echo after; echo after err >&2"}},
	}
	killed := suite.Shell("killed", "echo last words; echo last err >&2; kill -KILL $$")
	p := b.Up("p", harness.PodOf(ended, killed, suite.Shell("lives", "echo out; echo err >&2; exec sleep 1000"), suite.Shell("silent", "exec sleep 1000")))
	p.Sees("ended", "after err\n")
	p.Sees("ended", "\nafter\n")
	p.Exited("ended")
	p.Exited("killed")
	p.Sees("lives", "err\n")
	p.Sees("lives", "out\n")
	for app, want := range map[string]harness.Result{
		"ended":  {Stdout: "before\nout \x00\xff\r\nmore\n\nafter\n", Stderr: "before err\nerr\nno endafter err\n"},
		"killed": {Stdout: "last words\n", Stderr: "last err\n"},
		"lives":  {Stdout: "out\n", Stderr: "err\n"},
		"silent": {},
	} {
		for stream, part := range map[string]harness.Result{"": want, "stdout": {Stdout: want.Stdout}, "stderr": {Stderr: want.Stderr}} {
			args := []string{"logs", "--stream", stream, "p", app}
			if stream == "" {
				args = slices.Delete(args, 1, 3)
			}
			if have := b.Launcher(args...); have != part {
				t.Errorf("logs of %s, stream %q: %+v, want %+v", app, stream, have, part)
			}
		}
	}
	p.Stop()
}
