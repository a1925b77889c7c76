package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// killStart kills a process of a pod that starts.
func (r *round) killStart() {
	args := []string{"run", "--name", "p", r.Write("p.json", r.doc())}
	detached := r.rng.IntN(2) == 0
	if detached {
		args = slices.Insert(args, 1, "--detach")
	} else if r.rng.IntN(2) == 0 {
		args = slices.Insert(args, 1, "--rm")
	}
	cmd := r.start(args...)
	role := r.strike(spanStart, cmd, func() []int { return chain(cmd.Process.Pid) })
	// In the foreground the launcher is the monitor, without which no pod lives.
	r.clear(!detached || slices.Contains([]string{roleMonitor, roleInit, roleSupervisor}, role))
}

// killPod kills a process of a pod that runs, or is being stopped.
func (r *round) killPod(what span) {
	p := r.Up("p", r.doc())
	victims := []int{harness.ParentOf(r.T, p.Stager), p.Stager, p.Init()}
	var cmd *exec.Cmd
	if what == spanStop {
		cmd = r.start("stop", "p")
		victims = append(victims, cmd.Process.Pid)
	}
	role := r.strike(what, cmd, func() []int { return victims })
	r.clear(slices.Contains([]string{roleMonitor, roleInit, roleSupervisor}, role))
}

// clear checks what a kill has left. If ended is true, the pod's processes must end by themselves.
// Otherwise the pod is deleted. Afterwards gc removes the rest.
func (r *round) clear(ended bool) {
	r.T.Helper()
	if ended {
		r.CheckProcesses()
		// A monitor that is alive still has the pod's lock for a moment.
		harness.Eventually(r.T, "gc deletes the pod", func() bool {
			r.Must("gc")
			return len(r.PS()) == 0
		})
	}
	r.Note()
	for _, info := range r.PS() {
		// The monitor of a pod that did not start may delete it, too.
		if rm := r.Launcher("rm", "--force", info.UUID); rm.Code != 0 && !strings.Contains(rm.Stderr, "no such pod") {
			r.T.Fatalf("%+v", rm)
		}
	}
	r.Must("gc")
	r.CheckGone()
}

// killCommand kills a call-in, or the launcher that waits for it. Nothing is left of the call-in and
// its command; the pod goes on.
func (r *round) killCommand() {
	p := r.Up("p", r.doc())
	mark := "mark of " + r.Cgroup
	commands := [][]string{
		{"exec", "p", "a", "--", "sh", "-c", "sleep 1000 & wait", mark},
		{"exec", "p", "a", "--", "sh", "-c", "exec sleep 1000", mark},
		{"attach", "p", "a"},
		{"logs", "--follow", "p"},
		{"status", "p"},
	}
	cmd := r.start(commands[r.rng.IntN(len(commands))]...)
	r.strike(spanExec, cmd, func() []int { return chain(cmd.Process.Pid) })
	namespace := fmt.Sprintf("/proc/%d/ns/mnt", p.Stager)
	harness.Eventually(r.T, "the call-in and its command have ended", func() bool {
		return len(processesWith(mark)) == 0 && len(inNamespaceOf(namespace)) == 1
	})
	for app, status := range p.Status() {
		if status.Exited {
			r.T.Errorf("app %s has exited", app)
		}
	}
	p.Stop()
}

// processesWith returns the processes that have an argument.
func processesWith(argument string) []int {
	return slices.DeleteFunc(harness.AllProcesses(), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !strings.Contains(string(line), argument)
	})
}

// inNamespaceOf returns the processes that are in a namespace.
func inNamespaceOf(path string) []int {
	want, err := os.Readlink(path)
	return slices.DeleteFunc(harness.AllProcesses(), func(pid int) bool {
		own, ownErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		return err != nil || ownErr != nil || own != want
	})
}

// killImport kills an import or a removal of an image. Afterwards the image is there as a whole, or not at
// all, and can be imported.
func (r *round) killImport() {
	id := suite.IDs["busybox"]
	args := []string{"image", "import", r.busyboxFile()}
	if r.rng.IntN(3) == 0 {
		r.Must(args...)
		args = []string{"image", "rm", id}
	}
	cmd := r.start(args...)
	r.strike(spanImport, cmd, func() []int { return chain(cmd.Process.Pid) })
	r.Must("gc")
	if left, err := filepath.Glob(filepath.Join(r.Store, ".tmp-*")); err != nil || len(left) > 0 {
		r.T.Errorf("%v; left after gc: %s", err, left)
	}
	r.checkImage(id)
	r.Must("image", "import", r.busyboxFile())
	if !r.checkImage(id) {
		r.T.Error("the image is not there after its import")
	}
	r.LayersAreNow()
	r.CheckGone()
}

// checkImage compares an image of the store with the one in the suite's store, and reports
// whether the image is there.
func (r *round) checkImage(id string) bool {
	r.T.Helper()
	there := false
	for line := range strings.Lines(r.Must("image", "list", "--json")) {
		var image struct{ ID, Damaged string }
		if err := json.Unmarshal([]byte(line), &image); err != nil || image.Damaged != "" {
			r.T.Errorf("%v; an image is damaged: %s", err, line)
		}
		there = there || image.ID == id
	}
	if !there {
		if err := unix.Access(filepath.Join(r.Store, id), unix.F_OK); err == nil {
			r.T.Errorf("%s is in the store and not in the list", id)
		}
		return false
	}
	for _, name := range []string{"manifest", "rootfs"} {
		diff := exec.Command("diff", "-r", "--no-dereference", filepath.Join(suite.Store, id, name), filepath.Join(r.Store, id, name))
		if out, err := diff.CombinedOutput(); err != nil {
			r.T.Errorf("the image differs: %v\n%s", err, out)
		}
	}
	return true
}
