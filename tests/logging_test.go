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
)

// An app writes as fast as it can, far more than the log keeps. The app is never
// blocked for good, and the log is bounded, complete and in order.
func TestTheLogOfAFastWriterIsBounded(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"log": {"maxSize": "256Ki", "maxFiles": 3}}`))
	const lines = 200000
	p := b.up("p", podOf(command("fast", "seq", "1", fmt.Sprint(lines)), shell("raw", "head -c 300000 /dev/zero | tr '\\0' x")))
	if code, _ := p.exited("fast"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	kept := strings.Fields(p.logs("fast"))
	if len(kept) == 0 || kept[len(kept)-1] != fmt.Sprint(lines) {
		t.Fatalf("the last of %d lines kept is not the last", len(kept))
	}
	// The oldest line may be incomplete, if its start was in a file that was removed.
	for i, line := range kept[1:] {
		if want := fmt.Sprint(lines - len(kept) + i + 2); line != want {
			t.Fatalf("line %q, want %s", line, want)
		}
	}
	files, err := filepath.Glob(p.root(suite.stager.LogDir + "/fast/*"))
	if err != nil || len(files) == 0 || len(files) > 4 {
		t.Errorf("log files %q, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 512<<10 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	p.exited("raw")
	if log := p.logs("raw"); log != strings.Repeat("x", 300000) {
		t.Errorf("of a line of 300000 bytes %d came back", len(log))
	}
	p.stop()
}

// The stager's own log loses its older half at log.maxSize, and has its newest lines.
func TestTheStagersOwnLogIsBounded(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"log": {"maxSize": "2Mi"}}`))
	p := b.up("p", podOf(command("a", "sleep", "1000")))
	log, err := os.OpenFile(filepath.Join(p.dir, "stager.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := io.WriteString(log, strings.Repeat("a line of another time\n", 3<<20/23)); err != nil {
		t.Fatal(err)
	}
	b.must("kill", "p") // the stager logs the app's end
	var text string
	eventually(t, "the log is cut, and has the app's end", func() bool {
		text = p.stagerLog()
		return len(text) <= 1<<20+4096 && strings.Contains(text, `msg="app ended"`)
	})
	if !strings.HasPrefix(text, "a line of another time\n") {
		t.Errorf("the log is now %.100q…", text)
	}
	p.stop()
}

// The test fills the disk of the pods' folder: the app goes on, and the stager logs it once.
func TestAppsGoOnWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	b := newMachine(t, func(b *machine) { b.pods = filepath.Join(b.dir, "disk/pods") })
	b.mountTmpfs(b.folder("disk", 0o700), "size=24m")
	dir := b.folder("sync", 0o777)
	up := b.signalPipe(filepath.Join(dir, "up"))
	script := `seq 1 2000000; echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.02; done; seq 1 1000; echo again >/sync/up; exec sleep 1000`
	p := b.up("p", podOf(shell("a", script)).hostVolume("sync", dir, "/sync"))
	fill, err := os.Create(filepath.Join(p.dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for err = nil; err == nil; {
		_, err = fill.Write(make([]byte, 64<<10))
	}
	up.line()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	up.line()
	if s := p.status()["a"]; s.Exited {
		t.Errorf("the app has ended: %+v", s)
	}
	// The stager's own log is on the same disk.
	if err := os.Remove(filepath.Join(p.dir, "fill")); err != nil {
		t.Fatal(err)
	}
	fill.Close()
	r := p.exec("a", "true")
	if r.code != 0 {
		t.Errorf("run: %+v", r)
	}
	if n := strings.Count(p.stagerLog(), "no space left"); n > 2 {
		t.Errorf("the full disk is mentioned %d times", n)
	}
	p.stop()
}

// The test does not read the stager's own output.
func TestAnUnreadStagerLogDelaysNothing(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	read, write := b.pipe()
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	_ = read // never read
	var apps []appDoc
	for i := range 40 {
		apps = append(apps, shell(fmt.Sprint("app", i), "exec sleep 1000"))
	}
	d := b.direct(documentOf(podOf(apps...), b.busyboxLayer()), b.busyboxLayer())
	d.output = write
	d.startReady()
	write.Close()
	d.stop()
}

// When a detached pod has ended, its apps' logs can be read until gc; gc leaves nothing.
func TestLogsOutliveTheirPod(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"exitPolicy": "all"}`))
	dir := b.folder("sync", 0o777)
	p := b.up("p", podOf(shell("a", "while ! [ -e /sync/go ]; do sleep 0.02; done; echo last; printf words >&2; exit 3")).hostVolume("sync", dir, "/sync"))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod has ended", func() bool { return b.ps()[0].State == "exited" })
	if r := b.launcher("logs", "p"); r.code != 0 || r.stdout != "last\n" || r.stderr != "words" {
		t.Errorf("logs: %+v", r)
	}
	if r := b.launcher("logs", "--follow", "--stream", "stderr", "p", "a"); r.code != 0 || r.stdout != "" || r.stderr != "words" {
		t.Errorf("logs --follow: %+v", r)
	}
	if _, err := os.Stat(p.root("")); err == nil {
		t.Error("the stager's root is left")
	}
	b.must("gc")
	b.checkGone()
}

// If the reader of the logs of an ended pod stops reading, a signal ends the launcher.
func TestASignalEndsUnreadLogs(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"exitPolicy": "all"}`))
	dir := b.folder("sync", 0o777)
	b.up("ended", podOf(shell("a", "while ! [ -e /sync/go ]; do sleep 0.02; done; seq 100000")).hostVolume("sync", dir, "/sync"))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod has ended", func() bool { return b.ps()[0].State == "exited" })
	for _, args := range [][]string{{"logs", "ended"}, {"logs", "--json", "ended"}} {
		cmd := b.command(args...)
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
	b.must("gc")
	b.checkGone()
}

// The log keeps what apps and their handlers write to either stream, byte for byte, for running and
// for ended apps.
func TestBothStreamsAreKept(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	t.Parallel()
	b := newMachine(t)
	ended := shell("ended", `printf 'out \000\377\r\n'; echo err >&2; echo more; printf 'no end' >&2; exit 7`)
	ended.App.EventHandlers = []handlerDoc{
		{"pre-start", []string{"/bin/sh", "-c", "echo before; echo before err >&2"}},
		{"post-stop", []string{"/bin/sh", "-c", "echo; echo after; echo after err >&2"}},
	}
	killed := shell("killed", "echo last words; echo last err >&2; kill -KILL $$")
	p := b.up("p", podOf(ended, killed, shell("lives", "echo out; echo err >&2; exec sleep 1000"), shell("silent", "exec sleep 1000")))
	p.sees("ended", "after err\n")
	p.sees("ended", "\nafter\n")
	p.exited("ended")
	p.exited("killed")
	p.sees("lives", "err\n")
	p.sees("lives", "out\n")
	for app, want := range map[string]result{
		"ended":  {stdout: "before\nout \x00\xff\r\nmore\n\nafter\n", stderr: "before err\nerr\nno endafter err\n"},
		"killed": {stdout: "last words\n", stderr: "last err\n"},
		"lives":  {stdout: "out\n", stderr: "err\n"},
		"silent": {},
	} {
		for stream, part := range map[string]result{"": want, "stdout": {stdout: want.stdout}, "stderr": {stderr: want.stderr}} {
			args := []string{"logs", "--stream", stream, "p", app}
			if stream == "" {
				args = slices.Delete(args, 1, 3)
			}
			if have := b.launcher(args...); have != part {
				t.Errorf("logs of %s, stream %q: %+v, want %+v", app, stream, have, part)
			}
		}
	}
	p.stop()
}
