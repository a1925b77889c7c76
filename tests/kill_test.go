package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// victim is a process that a pod depends on.
type victim struct {
	name string
	find func(b *machine) int
}

func victims() []victim {
	return []victim{
		{"stager", func(b *machine) int { return b.onlyPod().stager }},
		{"supervisor", func(b *machine) int { return b.onlyPod().supervisor() }},
		{"monitor", func(b *machine) int { return b.monitor() }},
	}
}

// onlyPod returns the machine's only pod, in any phase.
func (b *machine) onlyPod() *pod {
	b.t.Helper()
	for _, info := range b.ps() {
		return &pod{b, info.Name, info.UUID, filepath.Join(b.pods, info.UUID), info.PID}
	}
	b.t.Fatal("the machine has no pod")
	return nil
}

// monitor returns the launcher's process that is the stager's parent.
func (b *machine) monitor() int {
	b.t.Helper()
	return parentOf(b.t, b.onlyPod().stager)
}

// moment is a moment in a pod's life at which it is killed. reach starts the pod and returns at that
// moment; pod is the manifest of the killed pod and of the next one.
type moment struct {
	name  string
	doc   func(apps ...appDoc) podDoc
	reach func(b *machine, doc podDoc, up *signalPipe) *exec.Cmd
}

// hostPID returns a pod that uses the host's PID namespace.
func hostPID(apps ...appDoc) podDoc {
	doc := podOf(apps...)
	doc.Isolators = []any{isolator("os/linux/namespaces", map[string]string{"pid": "host"})}
	return doc
}

func moments() []moment {
	inHandler := func(b *machine, doc podDoc, up *signalPipe) *exec.Cmd {
		doc.Apps[0].App.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "[ -e /sync/again ] || { sleep 1000 & echo up >/sync/up; wait; }"}}}
		cmd := b.startPod(doc)
		up.line()
		return cmd
	}
	running := func(b *machine, doc podDoc, up *signalPipe) *exec.Cmd {
		doc.Apps[0].App.Exec[2] = "(setsid sleep 1000 &) ; [ -e /sync/again ] || echo up >/sync/up; exec sleep 1000"
		cmd := b.startPod(doc)
		up.line()
		return cmd
	}
	stopping := func(b *machine, doc podDoc, up *signalPipe) *exec.Cmd {
		doc.Apps[0].App.Exec[2] = `[ -e /sync/again ] && exec sleep 1000
			trap 'echo asked >/sync/up' TERM; echo up >/sync/up; while :; do sleep 1000 & wait $!; done`
		cmd := b.startPod(doc)
		up.line()
		eventually(b.t, "the pod is up", func() bool { return b.ps()[0].State == "running" })
		if err := unix.Kill(b.onlyPod().stager, unix.SIGTERM); err != nil {
			b.t.Fatal(err)
		}
		up.line()
		return cmd
	}
	return []moment{
		{"in a handler of the start", podOf, inHandler},
		{"while it runs", podOf, running},
		{"while it stops", podOf, stopping},
		{"in a handler, host's PID namespace", hostPID, inHandler},
		{"while it runs, host's PID namespace", hostPID, running},
		{"while it stops, host's PID namespace", hostPID, stopping},
	}
}

// startPod starts the pod "p" and does not wait.
func (b *machine) startPod(doc podDoc) *exec.Cmd {
	b.t.Helper()
	cmd := b.command("run", "--detach", "--name", "p", b.write("p.json", doc))
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
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
				b := newMachine(t)
				dir := b.folder("sync", 0o777)
				up := b.signalPipe(filepath.Join(dir, "up"))
				doc := m.doc(shell("a", "exec sleep 1000"), shell("b", "exec sleep 1000")).hostVolume("sync", dir, "/sync")
				cmd := m.reach(b, doc, up)
				b.note()
				if err := unix.Kill(v.find(b), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it may have failed with the pod, or have been done before
				b.checkProcesses()
				eventually(t, "the daemon knows", func() bool {
					all := b.ps()
					return len(all) == 0 || all[0].State == "exited" || all[0].State == "dead"
				})
				if err := os.WriteFile(filepath.Join(dir, "again"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				p := b.up("p", doc)
				p.must("rm", "--force", "p")
				b.must("gc")
				b.checkGone()
			})
		}
	}
}

// The test kills the stager of a starting pod at arbitrary moments.
func TestNothingSurvivesAKillAtAnyTime(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	var apps []appDoc
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		apps = append(apps, shell(name, "sleep 1000 & exec sleep 1000"))
	}
	path := b.write("p.json", podOf(apps...))
	for round := range 20 {
		cmd := b.command("run", "--rm", "--name", "p", path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the stager", func() bool { all := b.ps(); return len(all) == 1 && all[0].PID > 0 })
		// In each round the start gets further: the test waits for one more process.
		eventually(t, "more processes", func() bool {
			b.note()
			return len(b.processes()) > round || b.ps()[0].State == "running"
		})
		if err := unix.Kill(b.ps()[0].PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("launcher run succeeds with a killed stager")
		}
		b.checkGone()
	}
}

// The test kills a launcher that waits until its detached pod is up: the pod goes on, because
// its parent is the monitor.
func TestADetachedPodOutlivesItsLauncher(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("sync", 0o777)
	up := b.signalPipe(filepath.Join(dir, "up"))
	app := shell("a", "exec sleep 1000")
	app.App.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "echo up >/sync/up; while ! [ -e /sync/go ]; do sleep 0.01; done"}}}
	cmd := b.startPod(podOf(app).hostVolume("sync", dir, "/sync"))
	up.line()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is up", func() bool { return b.ps()[0].State == "running" })
	b.must("rm", "--force", "p")
	b.checkGone()
}
