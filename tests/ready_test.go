package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
)

// The ready pipe's end of file comes when the pod is up and not before, for each descriptor
// that the pipe can have.
func TestReadyPipeEndsWhenThePodIsUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files func(ready *os.File) []*os.File
	}{
		{"descriptor 4", func(ready *os.File) []*os.File { return []*os.File{nil, ready} }},
		{"descriptor 3", func(ready *os.File) []*os.File { return []*os.File{ready} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			dir := b.folder("sync", 0o777)
			up := b.signalPipe(filepath.Join(dir, "up"))
			app := shell("a", "exec sleep 1000")
			app.App.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.01; done"}}}
			d := b.direct(documentOf(podOf(app, shell("b", "exec sleep 1000")).hostVolume("sync", dir, "/sync"), b.busyboxLayer()), b.busyboxLayer())
			d.plan.Volumes = map[string]string{"sync": dir}
			read, write := b.pipe()
			d.start(tt.files(write)...)
			write.Close()
			up.line()
			if err := read.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := read.Read(make([]byte, 1)); !os.IsTimeout(err) {
				t.Fatalf("the ready pipe ends during the start: %v\n%s", err, d.messages())
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			d.ready = read
			d.waitReady()
			d.stop()
		})
	}
}

func TestAPodStartsWithoutAReadyPipe(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	d := b.direct(documentOf(podOf(shell("a", "echo runs; exec sleep 1000")), b.busyboxLayer()), b.busyboxLayer())
	d.start(nil, nil)
	d.sees("a", "stdout F runs")
	d.stop()
}

// The test passes descriptors for apps as some versions of Kurma do, also the
// read end of one pipe for all three.
func TestStdioVariablesNameDescriptors(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	talker := shell("my-app", "read line; echo out $line; echo err $line >&2; exec sleep 1000")
	reader := shell("reader", "read line; echo got $line; exec sleep 1000")
	plain := shell("plain", "echo plain; exec sleep 1000")
	d := b.direct(documentOf(podOf(talker, reader, plain), b.busyboxLayer()), b.busyboxLayer())
	inRead, inWrite := b.pipe()
	configRead, configWrite := b.pipe()
	outRead, outWrite := b.pipe()
	readyRead, readyWrite := b.pipe()
	d.plan.Env = append(slices.Clone(d.plan.Env),
		"STAGER_CONTAINER_my-app_STDIN=4", "STAGER_CONTAINER_my-app_STDOUT=5", "STAGER_CONTAINER_my-app_STDERR=5",
		"STAGER_CONTAINER_reader_STDIN=6", "STAGER_CONTAINER_reader_STDOUT=6", "STAGER_CONTAINER_reader_STDERR=6",
		"STAGER_CONTAINER_plain_STDIN=77", "STAGER_CONTAINER_plain_STDOUT=-1", "STAGER_CONTAINER_plain_STDERR=x",
		"STAGER_CONTAINER_nobody_STDOUT=1",
	)
	d.ready = readyRead
	d.start(readyWrite, inRead, outWrite, configRead)
	for _, f := range []*os.File{readyWrite, inRead, outWrite, configRead} {
		f.Close()
	}
	d.waitReady()
	fmt.Fprintln(inWrite, "one")
	fmt.Fprintln(configWrite, "two")
	if err := outRead.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("out one\nerr one\n"))
	if _, err := io.ReadFull(outRead, got); err != nil || string(got) != "out one\nerr one\n" {
		t.Errorf("my-app wrote %q, %v", got, err)
	}
	d.sees("reader", "stdout F got two")
	d.sees("plain", "stdout F plain")
	d.stop()
	// No process may have a copy of the app's end.
	if rest, err := io.ReadAll(outRead); len(rest) > 0 || err != nil {
		t.Errorf("after the end %q, %v", rest, err)
	}
	if _, err := inWrite.Write([]byte("x")); err == nil {
		t.Error("a process still has the app's stdin open")
	}
}

// The test checks the open descriptors of an app, its handler and a command of run.
func TestAppsInheritNoDescriptors(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	// 3 is the folder that ls reads; with another open descriptor, it would be 4.
	list := []string{"/bin/ls", "-x", "/proc/self/fd"}
	app := command("a", list...)
	app.App.EventHandlers = []handlerDoc{{"pre-start", list}, {"post-stop", list}}
	d := b.direct(documentOf(podOf(app), b.busyboxLayer()), b.busyboxLayer())
	read, write := b.pipe()
	extra, extraWrite := b.pipe()
	d.ready = read
	d.start(nil, write, extra, extraWrite, extra)
	write.Close()
	d.waitReady()
	eventually(t, "three lists", func() bool { return strings.Count(d.appLog("a"), "\n") >= 3 })
	for line := range strings.Lines(d.appLog("a")) {
		_, list, _ := strings.Cut(line, "stdout F ")
		if strings.Join(strings.Fields(list), " ") != "0 1 2 3" {
			t.Errorf("descriptors: %s", line)
		}
	}
	d.stop()
}

func TestAnAppHasItsEnvironmentAndIdentity(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	app := command("a", "env")
	app.App.Environment = []nameValue{{"A", "$HOME ${A} `id` \"q\" 'q' \\n a=b"}, {"PATH", "/nowhere:/bin"}, {"AC_APP_NAME", "liar"}}
	ids := command("ids", "cat", "/proc/self/status")
	ids.App.User, ids.App.Group, ids.App.SupplementaryGID = "user", "1234", []int{20, 21}
	file := command("file", "cat", "/proc/self/status")
	file.App.User, file.App.Group = "/tmp", "/tmp"
	folder := command("folder", "pwd")
	folder.App.WorkingDirectory = "/tmp"
	p := b.up("env", podOf(app, ids, file, folder))
	for name := range p.status() {
		p.exited(name)
	}
	env := p.logs("a")
	for _, want := range []string{
		"A=$HOME ${A} `id` \"q\" 'q' \\n a=b\n", "PATH=/nowhere:/bin\n", "AC_APP_NAME=a\n", "container=", "AC_METADATA_URL=http",
	} {
		if !strings.Contains(env, want) {
			t.Errorf("environment has no %q:\n%s", want, env)
		}
	}
	for _, name := range []string{"STAGER", "_LIBCONTAINER", "LISTEN_", "GO", "liar", "HOME=/"} {
		if strings.Contains(env, "\n"+name) {
			t.Errorf("environment has %s:\n%s", name, env)
		}
	}
	for app, wants := range map[string][]string{
		"ids":    {"Uid:\t1000\t1000\t1000\t1000\n", "Gid:\t1234\t1234\t1234\t1234\n", "Groups:\t20 21", "CapEff:\t0000000000000000\n", "CapBnd:\t00000000a80425fb\n"},
		"file":   {"Uid:\t0\t0\t0\t0\n", "CapEff:\t00000000a80425fb\n", "CapInh:\t0000000000000000\n", "NoNewPrivs:\t0\n", "Seccomp:\t2\n"},
		"folder": {"/tmp\n"},
	} {
		for _, want := range wants {
			if log := p.logs(app); !strings.Contains(log, want) {
				t.Errorf("%s: no %q in\n%s", app, want, log)
			}
		}
	}
	p.stop()
}

// The test starts a stager whose own root is an overlay, which cannot hold an app's upper
// folder.
func TestStagerRunsOnOverlay(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"", "copy"} {
		t.Run("graphStorage "+storage, func(t *testing.T) {
			b := newMachine(t)
			doc := documentOf(podOf(shell("a", "echo changed >/etc/passwd && echo wrote; exec sleep 1000")), b.busyboxLayer())
			doc["stagerConfig"] = map[string]any{"graphStorage": storage}
			d := b.direct(doc, b.busyboxLayer())
			d.plan.Overlay = true
			for _, suffix := range []string{".upper", ".work"} {
				if err := os.Mkdir(d.plan.Root+suffix, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// The log is in the daemon's overlay, so it cannot be read from outside.
			d.startReady()
			d.plan.Root += ".upper"
			d.sees("a", "stdout F wrote")
			d.plan.Root = strings.TrimSuffix(d.plan.Root, ".upper")
			d.stop()
			for _, suffix := range []string{".upper", ".work"} {
				if err := os.RemoveAll(d.plan.Root + suffix); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// The test calls status while the stager copies a large layer: the app is not
// started yet.
func TestStatusAnswersWhileRootsAreMade(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	large := b.folder("sha512-"+strings.Repeat("1", 128), 0o755)
	for i := range 5000 {
		if err := os.WriteFile(filepath.Join(large, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doc := documentOf(podOf(shell("a", "exec sleep 1000")), b.busyboxLayer(), large)
	doc["stagerConfig"] = map[string]any{"graphStorage": "copy", "gracePeriod": "1s"}
	d := b.direct(doc, b.busyboxLayer(), large)
	read, write := b.pipe()
	d.ready = read
	d.start(nil, write)
	write.Close()
	var out []byte
	eventually(t, "an answer of status", func() bool {
		var err error
		out, err = exec.Command("nsenter", "--target", strconv.Itoa(d.cmd.Process.Pid), "--mount", "--net", "--root", names.CallInDir+"/"+names.Status).CombinedOutput()
		return err == nil
	})
	if text := strings.Join(strings.Fields(string(out)), ""); text != `{"a":{"exited":false}}` {
		t.Errorf("status: %s", out)
	}
	if err := read.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := read.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("the copy was over too early for this test: %v", err)
	}
	d.waitReady()
	d.stop()
}

// TestPodHasOneUUID: the metadata service has the same UUID of the pod as the launcher.
func TestPodHasOneUUID(t *testing.T) {
	clause.Covers(t, "C-ID-01")
	t.Parallel()
	b := newMachine(t)
	p := b.up("uuid", podOf(shell("a", `wget -q -O - "$AC_METADATA_URL/acMetadata/v1/pod/uuid"; exec sleep 1000`)))
	p.sees("a", p.uuid)
	p.stop()
}

// TestASecondStagerIsRefused starts the stager's program again in the root of a
// running pod, as a person does who wants to see its usage.
func TestASecondStagerIsRefused(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("p", podOf(shell("a", "exec sleep 1000")))
	r := finish(t, p.callIn("../.."+suite.stager.Exec[0]))
	if r.code != 1 || r.stderr != filepath.Base(suite.stager.Exec[0])+": another stager already runs in this root\n" {
		t.Errorf("a second stager: %+v", r)
	}
	if s := p.status()["a"]; s.Exited {
		t.Errorf("the app is %+v", s)
	}
	p.succeeds("a", "true")
	p.stop()
}
