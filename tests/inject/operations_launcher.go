package inject

import (
	"os"
	"slices"
	"strings"
)

// launcherOperations are the commands of the launcher that read and change images, keys and pods without a network.
func launcherOperations(b built) []operation {
	return append(imageOperations(), append(podOperations(b), enteringOperations(b)...)...)
}

func imageOperations() []operation {
	importAgain := func(w *world) {
		if !w.has() {
			w.launcher("image", "import", w.path(smallFile))
		}
	}
	forget := func(w *world) {
		if w.trusts() {
			w.launcher("trust", "rm", w.fingerprint)
		}
	}
	add := []string{"trust", "add", "--fingerprint", fingerprintWord, keyFile}
	return []operation{
		{
			name: "image-import", before: [][]string{{"image", "rm", smallWord}}, act: []string{"image", "import", smallFile},
			ready: func(w *world) bool { return !w.has() }, done: func(w *world, _ result) bool { return w.has() }, after: importAgain,
		},
		importOf("image-pull", "docker://"+pulled, pulledName),
		importOf("image-layout", layoutDir, layoutName),
		importOf("image-archive", archiveFile, savedName),
		{
			name: "image-rm", act: []string{"image", "rm", smallWord},
			ready: (*world).has, done: func(w *world, _ result) bool { return !w.has() }, after: importAgain,
		},
		{name: "image-list", act: []string{"image", "list"}, done: said("example.com/small")},
		{name: "image-prune", act: []string{"image", "prune"}, done: func(w *world, _ result) bool { return w.has() }},
		{
			name: "image-export", act: []string{"image", "export", "--compress", "gzip", smallWord, "out.aci"},
			ready: func(w *world) bool { return !w.exists("out.aci") },
			done:  func(w *world, _ result) bool { return w.same("out.aci", smallFile) },
			after: func(w *world) { _ = os.Remove(w.path("out.aci")) },
		},
		{
			name: "trust-add", act: add, ready: func(w *world) bool { return !w.trusts() },
			done: func(w *world, _ result) bool { return w.trusts() }, after: forget,
		},
		{
			name: "trust-rm", before: [][]string{add}, act: []string{"trust", "rm", fingerprintWord},
			ready: (*world).trusts, done: func(w *world, _ result) bool { return !w.trusts() }, after: forget,
		},
		{name: "trust-list", before: [][]string{add}, act: []string{"trust", "list"}, ready: (*world).trusts, done: said("example"), after: forget},
	}
}

// importOf is the import of an image of Docker or OCI, which then has that name.
func importOf(operationName, source, name string) operation {
	return operation{
		name: operationName, act: []string{"image", "import", source},
		ready: func(w *world) bool { return !w.stores(name) }, done: func(w *world, _ result) bool { return w.stores(name) },
		after: func(w *world) {
			if w.stores(name) {
				w.launcher("image", "rm", name)
			}
		},
	}
}

func podOperations(b built) []operation {
	up, ended := [][]string{upPod(b), {awaitWord}}, [][]string{upPod(b), {awaitWord}, {"stop", "p"}}
	running := func(w *world, _ result) bool { return w.running() }
	exited := func(w *world, _ result) bool { return w.exited() }
	absent := func(w *world, _ result) bool { return w.absent() }
	short := func(more ...string) []string {
		return append(append([]string{"run", "--name", "p", "--exec", "/bin/sh"}, more...), b.Busy, "--", "-c", "echo hello")
	}
	return []operation{
		{name: "run-detach", act: upPod(b), ready: (*world).absent, done: running, kept: hello},
		{name: "run", passes: true, act: short(), ready: (*world).absent, done: said("hello\n")},
		{name: "run-rm", passes: true, act: short("--rm"), ready: (*world).absent, done: said("hello\n")},
		{name: "stop", before: up, act: []string{"stop", "p"}, ready: (*world).running, done: exited, kept: hello},
		{name: "kill", before: up, act: []string{"kill", "p"}, ready: (*world).running, done: func(w *world, _ result) bool { return w.ends() }, kept: hello},
		{name: "restart", before: up, act: []string{"restart", "p"}, ready: (*world).running, done: running},
		{name: "restart-ended", before: ended, act: []string{"restart", "p"}, ready: (*world).exited, done: running},
		{name: "rm", before: ended, act: []string{"rm", "p"}, ready: (*world).exited, done: absent},
		{name: "rm-force", before: up, act: []string{"rm", "--force", "p"}, ready: (*world).running, done: absent},
		{name: "gc", before: ended, act: []string{"gc"}, ready: (*world).exited, done: absent},
		{name: "wait", before: ended, act: []string{"wait", "p"}, ready: (*world).exited, done: said("3\n")},
		{name: "ps", before: up, act: []string{"ps"}, ready: (*world).running, done: said("running")},
		{name: "inspect", before: up, act: []string{"inspect", "p"}, ready: (*world).running, done: said(`"name": "p"`)},
		{name: "logs", before: up, act: []string{"logs", "p"}, ready: (*world).running, done: said("hello\n")},
		{name: "logs-ended", before: ended, act: []string{"logs", "p"}, ready: (*world).exited, done: said("hello\n")},
		{name: "events", before: up, act: []string{"events", "--since", "1h", "--stream=false"}, ready: (*world).running, done: said("ready")},
		{name: "stats", before: up, act: []string{"stats", "--no-stream", "p"}, ready: (*world).running, done: said("busybox")},
		{name: "top", before: up, act: []string{"top", "p"}, ready: (*world).running, done: said("sleep")},
		{name: "validate", act: []string{"validate", b.Busy}, done: said("")},
	}
}

// enteringOperations are the commands that call into a pod.
func enteringOperations(b built) []operation {
	up := [][]string{upPod(b)}
	file := []string{"exec", "p", "--", "/bin/sh", "-c", "echo text >/tmp/file"}
	return []operation{
		{name: "exec", passes: true, before: up, act: []string{"exec", "p", "--", "/bin/sh", "-c", "echo done"}, ready: (*world).running, done: said("done\n")},
		{name: "exec-tty", passes: true, before: up, act: []string{"exec", "--tty", "p", "--", "/bin/sh", "-c", "echo done"}, ready: (*world).running, done: said("done\r\n")},
		{name: "status", passes: true, before: up, act: []string{"status", "p"}, ready: (*world).running, done: toldState},
		{name: "call", passes: true, before: up, act: []string{"call", "p", "status"}, ready: (*world).running, done: said("exited")},
		{
			name: "cp-to", before: up, act: []string{"cp", smallFile, "p:/tmp/file"}, ready: (*world).running,
			done: func(w *world, _ result) bool {
				r := w.launcher("exec", "p", "--", "/bin/sh", "-c", "cat /tmp/file")
				text, err := os.ReadFile(w.path(smallFile))
				return err == nil && r.stdout == string(text)
			},
		},
		{
			name: "cp-from", before: append(up, file), act: []string{"cp", "p:/tmp/file", "copied"},
			ready: func(w *world) bool { return w.running() && !w.exists("copied") },
			done: func(w *world, _ result) bool {
				text, err := os.ReadFile(w.path("copied"))
				return err == nil && string(text) == "text\n"
			},
			after: func(w *world) { _ = os.Remove(w.path("copied")) },
		},
		{name: "attach", passes: true, before: [][]string{append(slices.Clone(up[0][:len(up[0])-1]), ticks)}, act: []string{"attach", "p"}, ready: func(*world) bool { return false }, done: said("tick\n")},
	}
}

// toldState reports whether status tells the app's state: also that it has ended with a supervisor that is killed.
func toldState(w *world, r result) bool {
	return said("running")(w, r) || strings.Contains(r.stdout, "ended with the stager") && !w.running()
}

// ticks is what the app of a pod does that attach connects to: it ends soon.
const ticks = "for i in 1 2 3 4 5 6 7 8 9 10; do echo tick; sleep 0.1; done"
