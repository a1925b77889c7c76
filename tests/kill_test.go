package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// victim is a process that a pod depends on.
type victim struct {
	name string
	find func(b *harness.Machine) int
}

func victims() []victim {
	return []victim{
		{"stager", func(b *harness.Machine) int { return b.OnlyPod().Stager }},
		{"init", func(b *harness.Machine) int { return b.OnlyPod().Init() }},
		{"monitor", func(b *harness.Machine) int { return b.Monitor() }},
	}
}

// moment is a moment in a pod's life at which it is killed. reach starts the pod and returns at that
// moment; pod is the manifest of the killed pod and of the next one.
type moment struct {
	name  string
	doc   func(apps ...harness.AppDoc) harness.PodDoc
	reach func(b *harness.Machine, doc harness.PodDoc, up *harness.SignalPipe) *exec.Cmd
}

// hostPID returns a pod that uses the host's PID namespace.
func hostPID(apps ...harness.AppDoc) harness.PodDoc {
	doc := harness.PodOf(apps...)
	doc.Isolators = []any{harness.Isolator("os/linux/namespaces", map[string]string{"pid": "host"})}
	return doc
}

func moments() []moment {
	inHandler := func(b *harness.Machine, doc harness.PodDoc, up *harness.SignalPipe) *exec.Cmd {
		doc.Apps[0].App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "[ -e /sync/again ] || { sleep 1000 & echo up >/sync/up; wait; }"}}}
		cmd := startPod(b, doc)
		up.Line()
		return cmd
	}
	running := func(b *harness.Machine, doc harness.PodDoc, up *harness.SignalPipe) *exec.Cmd {
		doc.Apps[0].App.Exec[2] = "(setsid sleep 1000 &) ; [ -e /sync/again ] || echo up >/sync/up; exec sleep 1000"
		cmd := startPod(b, doc)
		up.Line()
		return cmd
	}
	stopping := func(b *harness.Machine, doc harness.PodDoc, up *harness.SignalPipe) *exec.Cmd {
		doc.Apps[0].App.Exec[2] = `[ -e /sync/again ] && exec sleep 1000
			trap 'echo asked >/sync/up' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
		cmd := startPod(b, doc)
		up.Line()
		harness.Eventually(b.T, "the pod is up", func() bool { return b.PS()[0].State == "running" })
		if err := unix.Kill(b.OnlyPod().Stager, unix.SIGTERM); err != nil {
			b.T.Fatal(err)
		}
		up.Line()
		return cmd
	}
	return []moment{
		{"in a handler of the start", harness.PodOf, inHandler},
		{"while it runs", harness.PodOf, running},
		{"while it stops", harness.PodOf, stopping},
		{"in a handler, host's PID namespace", hostPID, inHandler},
		{"while it runs, host's PID namespace", hostPID, running},
		{"while it stops, host's PID namespace", hostPID, stopping},
	}
}

// startPod starts the pod "p" and does not wait.
func startPod(b *harness.Machine, doc harness.PodDoc) *exec.Cmd {
	b.T.Helper()
	cmd := b.Command("run", "--detach", "--name", "p", b.Write("p.json", doc))
	if err := cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	return cmd
}

// The test kills each process that a pod depends on, at each moment. No process of the pod survives,
// gc removes the rest, and the same pod starts again.
func TestNothingSurvivesAKill(t *testing.T) {
	t.Parallel()
	for _, m := range moments() {
		for _, v := range victims() {
			t.Run(v.name+" "+m.name, func(t *testing.T) {
				t.Parallel()
				b := suite.NewMachine(t)
				dir := b.Folder("sync", 0o777)
				up := b.SignalPipe(filepath.Join(dir, "up"))
				doc := m.doc(suite.Shell("a", "exec sleep 1000"), suite.Shell("b", "exec sleep 1000")).HostVolume("sync", dir, "/sync")
				cmd := m.reach(b, doc, up)
				// The app may run before the monitor has written down which process is the stager.
				harness.Eventually(t, "the pod's record names the stager", func() bool { return b.OnlyPod().Stager != 0 })
				b.Note()
				if err := unix.Kill(v.find(b), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it may have failed with the pod, or have been done before
				b.CheckProcesses()
				harness.Eventually(t, "the daemon knows", func() bool {
					all := b.PS()
					return len(all) == 0 || all[0].State == "exited" || all[0].State == "dead"
				})
				if err := os.WriteFile(filepath.Join(dir, "again"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				p := b.Up("p", doc)
				p.Must("rm", "--force", "p")
				b.Must("gc")
				b.CheckGone()
			})
		}
	}
}

// An app that locks the pipe of its output for ever, which the kernel has to close before the supervisor can end, holds
// up the pod's end neither when the supervisor is killed nor when the init is.
func TestAnAppThatLocksItsOutputIsKilledWithItsPod(t *testing.T) {
	t.Parallel()
	for _, v := range victims() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			m := suite.NewMachine(t)
			// BusyBox's cat copies by sendfile(2), and nobody types on the terminal.
			p := m.Up("p", harness.PodOf(suite.Command("idle", "cat", "/dev/ptmx"), suite.Command("neighbour", "sleep", "1000")))
			call := fmt.Sprintf("/proc/%d/syscall", p.Status()["idle"].PID)
			harness.Eventually(t, "the app waits in sendfile(2)", func() bool {
				text, _ := os.ReadFile(call) // nothing of a running process
				return strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_SENDFILE))
			})
			// The host may have stopped init.
			if err := errors.Join(unix.Kill(p.Init(), unix.SIGSTOP), unix.Kill(v.find(m), unix.SIGKILL)); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "all processes are gone", func() bool { return len(m.Processes()) == 0 })
		})
	}
}

// The test kills the stager of a starting pod at arbitrary moments.
func TestNothingSurvivesAKillAtAnyTime(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	var apps []harness.AppDoc
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		apps = append(apps, suite.Shell(name, "sleep 1000 & exec sleep 1000"))
	}
	path := b.Write("p.json", harness.PodOf(apps...))
	for round := range 20 {
		cmd := b.Command("run", "--rm", "--name", "p", path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the stager", func() bool { all := b.PS(); return len(all) == 1 && all[0].PID > 0 })
		// In each round the start gets further: the test waits for one more process.
		harness.Eventually(t, "more processes", func() bool {
			b.Note()
			return len(b.Processes()) > round || b.PS()[0].State == "running"
		})
		if err := unix.Kill(b.PS()[0].PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("launcher run succeeds with a killed stager")
		}
		b.CheckGone()
	}
}

// The test kills a launcher that waits until its detached pod is up: the pod goes on, because
// its parent is the monitor.
func TestADetachedPodOutlivesItsLauncher(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	app := suite.Shell("a", "exec sleep 1000")
	app.App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.01; done"}}}
	cmd := startPod(b, harness.PodOf(app).HostVolume("sync", dir, "/sync"))
	up.Line()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pod is up", func() bool { return b.PS()[0].State == "running" })
	b.Must("rm", "--force", "p")
	b.CheckGone()
}
