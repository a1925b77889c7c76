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
	"kurma.io/stager/tests/harness"
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
			b := suite.NewMachine(t)
			dir := b.Folder("sync", 0o777)
			up := b.SignalPipe(filepath.Join(dir, "up"))
			app := suite.Shell("a", "exec sleep 1000")
			app.App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.01; done"}}}
			d := b.Direct(harness.DocumentOf(harness.PodOf(app, suite.Shell("b", "exec sleep 1000")).HostVolume("sync", dir, "/sync"), b.BusyboxLayer()), b.BusyboxLayer())
			d.Plan.Volumes = map[string]string{"sync": dir}
			read, write := b.Pipe()
			d.Start(tt.files(write)...)
			write.Close()
			up.Line()
			if err := read.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := read.Read(make([]byte, 1)); !os.IsTimeout(err) {
				t.Fatalf("the ready pipe ends during the start: %v\n%s", err, d.Messages())
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			d.Ready = read
			d.WaitReady()
			d.Stop()
		})
	}
}

func TestAPodStartsWithoutAReadyPipe(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	d := b.Direct(harness.DocumentOf(harness.PodOf(suite.Shell("a", "echo runs; exec sleep 1000")), b.BusyboxLayer()), b.BusyboxLayer())
	d.Start(nil, nil)
	d.Sees("a", "stdout F runs")
	d.Stop()
}

// The test passes descriptors for apps as some versions of Kurma do, also the
// read end of one pipe for all three.
func TestStdioVariablesNameDescriptors(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	talker := suite.Shell("my-app", "read line; echo out $line; echo err $line >&2; exec sleep 1000")
	reader := suite.Shell("reader", "read line; echo got $line; exec sleep 1000")
	plain := suite.Shell("plain", "echo plain; exec sleep 1000")
	d := b.Direct(harness.DocumentOf(harness.PodOf(talker, reader, plain), b.BusyboxLayer()), b.BusyboxLayer())
	inRead, inWrite := b.Pipe()
	configRead, configWrite := b.Pipe()
	outRead, outWrite := b.Pipe()
	readyRead, readyWrite := b.Pipe()
	d.Plan.Env = append(slices.Clone(d.Plan.Env),
		"STAGER_CONTAINER_my-app_STDIN=4", "STAGER_CONTAINER_my-app_STDOUT=5", "STAGER_CONTAINER_my-app_STDERR=5",
		"STAGER_CONTAINER_reader_STDIN=6", "STAGER_CONTAINER_reader_STDOUT=6", "STAGER_CONTAINER_reader_STDERR=6",
		"STAGER_CONTAINER_plain_STDIN=77", "STAGER_CONTAINER_plain_STDOUT=-1", "STAGER_CONTAINER_plain_STDERR=x",
		"STAGER_CONTAINER_nobody_STDOUT=1",
	)
	d.Ready = readyRead
	d.Start(readyWrite, inRead, outWrite, configRead)
	for _, f := range []*os.File{readyWrite, inRead, outWrite, configRead} {
		f.Close()
	}
	d.WaitReady()
	fmt.Fprintln(inWrite, "one")
	fmt.Fprintln(configWrite, "two")
	if err := outRead.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("out one\nerr one\n"))
	if _, err := io.ReadFull(outRead, got); err != nil || string(got) != "out one\nerr one\n" {
		t.Errorf("my-app wrote %q, %v", got, err)
	}
	d.Sees("reader", "stdout F got two")
	d.Sees("plain", "stdout F plain")
	d.Stop()
	// No process may have a copy of the app's end.
	if rest, err := io.ReadAll(outRead); len(rest) > 0 || err != nil {
		t.Errorf("after the end %q, %v", rest, err)
	}
	if _, err := inWrite.Write([]byte("x")); err == nil {
		t.Error("a process still has the app's stdin open")
	}
}

// Regular files and devices of the daemon are not the app's, which could open them again: their bytes go through pipes.
func TestStdioVariablesMayNameFiles(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	d := b.Direct(harness.DocumentOf(harness.PodOf(suite.Shell("a", listInodes+"; read line; echo out $line; echo err >&2; exec sleep 1000")), b.BusyboxLayer()), b.BusyboxLayer())
	in, err := os.Open(b.Write("in", "words\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	log, err := os.OpenFile(b.Write("log", "before\n"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.Plan.Env = append(slices.Clone(d.Plan.Env), "STAGER_CONTAINER_a_STDIN=4", "STAGER_CONTAINER_a_STDOUT=5", "STAGER_CONTAINER_a_STDERR=5")
	d.Start(nil, in, log)
	read := func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	harness.Eventually(t, "the app has written", func() bool { return strings.HasSuffix(read(), "err\n") })
	d.Stop()
	_, list, _ := strings.Cut(strings.TrimSuffix(read(), "out words\nerr\n"), "before\n")
	for _, f := range []*os.File{in, log} {
		if strings.Count(list, ":") != 3 || strings.Contains("\n"+list, "\n"+inodeOf(t, f)+"\n") {
			t.Errorf("the app has %s: %q", f.Name(), read())
		}
	}
}

// The test checks the open descriptors of an app, its handler and a command of run.
func TestAppsInheritNoDescriptors(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	// 3 is the folder that ls reads; with another open descriptor, it would be 4.
	list := []string{"/bin/ls", "-x", "/proc/self/fd"}
	app := suite.Command("a", list...)
	app.App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: list}, {Name: "post-stop", Exec: list}}
	d := b.Direct(harness.DocumentOf(harness.PodOf(app), b.BusyboxLayer()), b.BusyboxLayer())
	read, write := b.Pipe()
	extra, extraWrite := b.Pipe()
	d.Ready = read
	d.Start(nil, write, extra, extraWrite, extra)
	write.Close()
	d.WaitReady()
	harness.Eventually(t, "three lists", func() bool { return strings.Count(d.AppLog("a"), "\n") >= 3 })
	for line := range strings.Lines(d.AppLog("a")) {
		_, list, _ := strings.Cut(line, "stdout F ")
		if strings.Join(strings.Fields(list), " ") != "0 1 2 3" {
			t.Errorf("descriptors: %s", line)
		}
	}
	d.Stop()
}

func TestAnAppHasItsEnvironmentAndIdentity(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	app := suite.Command("a", "env")
	app.App.Environment = []harness.NameValue{{Name: "A", Value: "$HOME ${A} `id` \"q\" 'q' \\n a=b"}, {Name: "PATH", Value: "/nowhere:/bin"}, {Name: "AC_APP_NAME", Value: "liar"}}
	ids := suite.Command("ids", "cat", "/proc/self/status")
	ids.App.User, ids.App.Group, ids.App.SupplementaryGID = "user", "1234", []int{20, 21}
	file := suite.Command("file", "cat", "/proc/self/status")
	file.App.User, file.App.Group = "/tmp", "/tmp"
	folder := suite.Command("folder", "pwd")
	folder.App.WorkingDirectory = "/tmp"
	p := b.Up("env", harness.PodOf(app, ids, file, folder))
	for name := range p.Status() {
		p.Exited(name)
	}
	env := p.Logs("a")
	for _, want := range []string{
		"A=$HOME ${A} `id` \"q\" 'q' \\n a=b\n", "PATH=/nowhere:/bin\n", "AC_APP_NAME=a\n", "container=", "AC_METADATA_URL=http",
	} {
		if !strings.Contains(env, want) {
			t.Errorf("environment has no %q:\n%s", want, env)
		}
	}
	for _, name := range []string{"STAGER", "_LIBCONTAINER", "LISTEN_", "GO", "liar", "HOME=/root"} {
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
			if log := p.Logs(app); !strings.Contains(log, want) {
				t.Errorf("%s: no %q in\n%s", app, want, log)
			}
		}
	}
	p.Stop()
}

// The test starts a stager whose own root is an overlay, which cannot hold an app's upper
// folder.
func TestStagerRunsOnOverlay(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"", "copy"} {
		t.Run("graphStorage "+storage, func(t *testing.T) {
			b := suite.NewMachine(t)
			doc := harness.DocumentOf(harness.PodOf(suite.Shell("a", "echo changed >/etc/passwd && echo wrote; exec sleep 1000")), b.BusyboxLayer())
			doc["stagerConfig"] = map[string]any{"graphStorage": storage}
			d := b.Direct(doc, b.BusyboxLayer())
			d.Plan.Overlay = true
			for _, suffix := range []string{".upper", ".work"} {
				if err := os.Mkdir(d.Plan.Root+suffix, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// The log is in the daemon's overlay, so it cannot be read from outside.
			d.StartReady()
			d.Plan.Root += ".upper"
			d.Sees("a", "stdout F wrote")
			d.Plan.Root = strings.TrimSuffix(d.Plan.Root, ".upper")
			d.Stop()
			for _, suffix := range []string{".upper", ".work"} {
				if err := os.RemoveAll(d.Plan.Root + suffix); err != nil {
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
	b := suite.NewMachine(t)
	large := b.Folder("sha512-"+strings.Repeat("1", 128), 0o755)
	for i := range 5000 {
		if err := os.WriteFile(filepath.Join(large, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doc := harness.DocumentOf(harness.PodOf(suite.Shell("a", "exec sleep 1000")), b.BusyboxLayer(), large)
	doc["stagerConfig"] = map[string]any{"graphStorage": "copy", "gracePeriod": "1s"}
	d := b.Direct(doc, b.BusyboxLayer(), large)
	read, write := b.Pipe()
	d.Ready = read
	d.Start(nil, write)
	write.Close()
	var out []byte
	harness.Eventually(t, "an answer of status", func() bool {
		var err error
		out, err = exec.Command("nsenter", "--target", strconv.Itoa(d.Cmd.Process.Pid), "--mount", "--net", "--root", names.CallInDir+"/"+names.Status).CombinedOutput()
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
	d.WaitReady()
	d.Stop()
}

// TestPodHasOneUUID: the metadata service has the same UUID of the pod as the launcher.
func TestPodHasOneUUID(t *testing.T) {
	clause.Covers(t, "C-ID-01")
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("uuid", harness.PodOf(suite.Shell("a", `wget -q -O - "$AC_METADATA_URL/acMetadata/v1/pod/uuid"; exec sleep 1000`)))
	p.Sees("a", p.UUID)
	p.Stop()
}

// TestASecondStagerIsRefused starts the stager's program again in the root of a
// running pod, as a person does who wants to see its usage.
func TestASecondStagerIsRefused(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	r := harness.Finish(t, p.CallIn("../.."+suite.Stager.Exec[0]))
	if r.Code != 1 || r.Stderr != filepath.Base(suite.Stager.Exec[0])+": another stager already runs in this root\n" {
		t.Errorf("a second stager: %+v", r)
	}
	if s := p.Status()["a"]; s.Exited {
		t.Errorf("the app is %+v", s)
	}
	succeeds(p, "a", "true")
	p.Stop()
}
