// Package inject tests what every operation of the product leaves when one system call fails, or when a process is
// killed before the call: a point at a time. The operations are the commands of the launcher, the calls of the CRI, and
// add and del of networks' plugins.
//
// Seccomp's user notification (seccomp_unotify(2)) stops each process of an operation before each call of the table in
// calls.go, whatever it executes. A process has a role: it is the command itself, a pod's monitor, one of the stager's
// processes, a plugin or kurma-cri. The calls of a role are counted over all of its processes and threads, by name, so a
// point has the same name in each run: OPERATION/ROLE/CALL/INDEX/FAULT. Two rounds without a fault count the calls.
//
// After a fault, a person's next steps must work (judge), and the world must be as after a round without a fault (left):
// files, mounts, processes, cgroups, links and rules. A point that is not reached counts as failed.
package inject

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/tests/poll"
)

// operation is what is done in the world while a fault is injected.
type operation struct {
	name string
	// before makes the world ready for act: commands of the launcher, which run under the filter, as what they start is
	// part of the operation.
	before [][]string
	act    []string // the command of the launcher
	passes bool     // act passes on the exit code of an app or a call-in, so 137 needs no word
	// ready reports whether act can be done in the world as it is; nil for always.
	ready func(*world) bool
	// done reports whether act has had its effect, given its result.
	done func(*world, result) bool
	// kept reports what is lost that no fault may lose, "" for nothing; nil for an operation that has nothing to lose.
	kept func(*world) string
	// after cleans the world, after all pods are gone; nil for nothing.
	after func(*world)
}

// operations returns all operations.
func operations(b built) []operation {
	return slices.Concat(launcherOperations(b), networkOperations(b), criOperations())
}

// cri reports whether the operation is a call of the CRI.
func (o operation) cri() bool { return o.act[0] == criWord }

// awaitWord is the command that waits until the app has written its line.
const awaitWord = "await"

// Words of commands that the world replaces.
const (
	smallWord       = "@SMALL"       // the ID of the small image
	fingerprintWord = "@FINGERPRINT" // of the key in keyFile
)

// Files of the world.
const (
	smallFile = "small.aci"
	keyFile   = "key.pub"
)

// words replaces the words of a command.
func (w *world) words(args []string) []string {
	args = slices.Clone(args)
	for i, word := range args {
		switch word {
		case smallWord:
			args[i] = w.small
		case fingerprintWord:
			args[i] = w.fingerprint
		}
	}
	return args
}

// podScript is what the app of a pod does.
const podScript = "echo hello; trap 'exit 3' TERM; while :; do sleep 1000 & wait; done"

// upPod is the command that starts the pod p.
func upPod(b built, more ...string) []string {
	args := append([]string{"run", "--detach", "--name", "p", "--exec", "/bin/sh"}, more...)
	return append(args, b.Busy, "--", "-c", podScript)
}

// state returns the state of the pod p, "" if there is none.
func (w *world) state() string {
	for line := range strings.Lines(w.launcher("ps", "--all", "--json").stdout) {
		if !strings.Contains(line, `"name":"p"`) {
			continue
		}
		_, rest, _ := strings.Cut(line, `"state":"`)
		word, _, _ := strings.Cut(rest, `"`)
		return word
	}
	return ""
}

func (w *world) running() bool { return w.state() == "running" }
func (w *world) exited() bool  { return w.state() == "exited" }
func (w *world) absent() bool  { return w.state() == "" }

// ends reports whether the pod p, which runs until its app has ended, ends soon; it is dead where its monitor is killed.
func (w *world) ends() bool {
	return poll.Until(5*time.Second, 50*time.Millisecond, func() bool {
		state := w.state()
		return state == "exited" || state == "dead" && w.injector.killed()
	})
}

// said returns a done that looks for words in the command's output.
func said(words ...string) func(*world, result) bool {
	return func(_ *world, r result) bool {
		for _, word := range words {
			if !strings.Contains(r.stdout, word) {
				return false
			}
		}
		return true
	}
}

// hello reports a log that is lost: the app has written one line.
func hello(w *world) string {
	state := w.state()
	if state != "running" && state != "exited" {
		return ""
	}
	var r result
	// An app that runs may not have written yet.
	if !poll.Until(5*time.Second, time.Second, func() bool {
		r = w.launcher("logs", "p")
		return state == "exited" || strings.Contains(r.stdout, "hello")
	}) || !strings.Contains(r.stdout, "hello") {
		return fmt.Sprintf("the log of a pod that is %s: %q %q", state, r.stdout, r.stderr)
	}
	return ""
}

// has reports whether the store has the small image.
func (w *world) has() bool {
	return strings.Contains(w.launcher("image", "list", "--json").stdout, w.small)
}

// stores reports whether the store has an image of that name.
func (w *world) stores(name string) bool {
	return strings.Contains(w.launcher("image", "list", "--json").stdout, name)
}

// trusts reports whether the key in keyFile is trusted.
func (w *world) trusts() bool {
	return strings.Contains(w.launcher("trust", "list", "--json").stdout, w.fingerprint)
}

// exists reports whether the world's folder has the file.
func (w *world) exists(name string) bool {
	_, err := os.Stat(w.path(name))
	return err == nil
}

// same reports whether two files of the world are the same.
func (w *world) same(a, b string) bool {
	one, oneErr := os.ReadFile(w.path(a))
	other, otherErr := os.ReadFile(w.path(b))
	return oneErr == nil && otherErr == nil && bytes.Equal(one, other)
}
