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
)

// killStart kills a process of a pod that starts.
func (r *round) killStart() {
	args := []string{"run", "--name", "p", r.write("p.json", r.doc())}
	detached := r.rng.IntN(2) == 0
	if detached {
		args = slices.Insert(args, 1, "--detach")
	} else if r.rng.IntN(2) == 0 {
		args = slices.Insert(args, 1, "--rm")
	}
	cmd := r.start(args...)
	role := r.strike(spanStart, cmd, func() []int { return chain(cmd.Process.Pid) })
	// In the foreground the launcher is the monitor, without which no pod lives.
	r.clear(!detached || slices.Contains([]string{roleMonitor, roleWaiter, roleSupervisor}, role))
}

// killPod kills a process of a pod that runs, or is being stopped.
func (r *round) killPod(what span) {
	p := r.up("p", r.doc())
	victims := []int{parentOf(r.t, p.stager), p.stager, p.supervisor()}
	var cmd *exec.Cmd
	if what == spanStop {
		cmd = r.start("stop", "p")
		victims = append(victims, cmd.Process.Pid)
	}
	role := r.strike(what, cmd, func() []int { return victims })
	r.clear(slices.Contains([]string{roleMonitor, roleWaiter, roleSupervisor}, role))
}

// clear checks what a kill has left. If ended is true, the pod's processes must end by themselves.
// Otherwise the pod is deleted. Afterwards gc removes the rest.
func (r *round) clear(ended bool) {
	r.t.Helper()
	if ended {
		r.checkProcesses()
		// A monitor that is alive still has the pod's lock for a moment.
		eventually(r.t, "gc deletes the pod", func() bool {
			r.must("gc")
			return len(r.ps()) == 0
		})
	}
	r.note()
	for _, info := range r.ps() {
		r.must("rm", "--force", info.UUID)
	}
	r.must("gc")
	r.checkGone()
}

// killCommand kills a call-in, or the launcher that waits for it. Nothing is left of the call-in and
// its command; the pod goes on.
func (r *round) killCommand() {
	p := r.up("p", r.doc())
	mark := "mark of " + r.cgroup
	commands := [][]string{
		{"exec", "p", "a", "--", "sh", "-c", "sleep 1000 & wait", mark},
		{"exec", "p", "a", "--", "sh", "-c", "exec sleep 1000", mark},
		{"attach", "p", "a"},
		{"logs", "--follow", "p"},
		{"status", "p"},
	}
	cmd := r.start(commands[r.rng.IntN(len(commands))]...)
	r.strike(spanExec, cmd, func() []int { return chain(cmd.Process.Pid) })
	namespace := fmt.Sprintf("/proc/%d/ns/mnt", p.stager)
	eventually(r.t, "the call-in and its command have ended", func() bool {
		return len(processesWith(mark)) == 0 && len(inNamespaceOf(namespace)) == 1
	})
	for app, status := range p.status() {
		if status.Exited {
			r.t.Errorf("app %s has exited", app)
		}
	}
	p.stop()
}

// processesWith returns the processes that have an argument.
func processesWith(argument string) []int {
	return slices.DeleteFunc(allProcesses(), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !strings.Contains(string(line), argument)
	})
}

// inNamespaceOf returns the processes that are in a namespace.
func inNamespaceOf(path string) []int {
	want, err := os.Readlink(path)
	return slices.DeleteFunc(allProcesses(), func(pid int) bool {
		own, ownErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		return err != nil || ownErr != nil || own != want
	})
}

// killImport kills an import or a removal of an image. Afterwards the image is there as a whole, or not at
// all, and can be imported.
func (r *round) killImport() {
	id := suite.ids["busybox"]
	args := []string{"image", "import", r.busyboxFile()}
	if r.rng.IntN(3) == 0 {
		r.must(args...)
		args = []string{"image", "rm", id}
	}
	cmd := r.start(args...)
	r.strike(spanImport, cmd, func() []int { return chain(cmd.Process.Pid) })
	r.must("gc")
	if left, err := filepath.Glob(filepath.Join(r.store, ".tmp-*")); err != nil || len(left) > 0 {
		r.t.Errorf("%v; left after gc: %s", err, left)
	}
	r.checkImage(id)
	r.must("image", "import", r.busyboxFile())
	if !r.checkImage(id) {
		r.t.Error("the image is not there after its import")
	}
	r.layersAreNow()
	r.checkGone()
}

// checkImage compares an image of the store with the one in the suite's store, and reports
// whether the image is there.
func (r *round) checkImage(id string) bool {
	r.t.Helper()
	there := false
	for line := range strings.Lines(r.must("image", "list", "--json")) {
		var image struct{ ID, Damaged string }
		if err := json.Unmarshal([]byte(line), &image); err != nil || image.Damaged != "" {
			r.t.Errorf("%v; an image is damaged: %s", err, line)
		}
		there = there || image.ID == id
	}
	if !there {
		if err := unix.Access(filepath.Join(r.store, id), unix.F_OK); err == nil {
			r.t.Errorf("%s is in the store and not in the list", id)
		}
		return false
	}
	for _, name := range []string{"manifest", "rootfs"} {
		diff := exec.Command("diff", "-r", "--no-dereference", filepath.Join(suite.store, id, name), filepath.Join(r.store, id, name))
		if out, err := diff.CombinedOutput(); err != nil {
			r.t.Errorf("the image differs: %v\n%s", err, out)
		}
	}
	return true
}
