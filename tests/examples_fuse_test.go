package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// checkFuse shows that the example's helpers are out of the apps' reach, and what happens when
// one is killed, or the stager. The app "killer" ends the app "other" when it kills all that it can.
func checkFuse(t *testing.T, b *machine) {
	t.Helper()
	p := b.up("fuse", podOf(shell("killer", `until [ -e /dev/shm/up ]; do :; done # killing the other app's start would end the pod
		for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done
		kill -9 -1
		echo works >/new && cat /new && echo "killed $((40+2))"
		exec sleep 1000`), shell("other", "echo >/dev/shm/up; while :; do sleep 1000; done")))
	p.sees("killer", "killed 42") // the log also has the script itself
	if code, reason := p.exited("other"); code == 0 {
		t.Errorf("the other app ended with 0, %s", reason)
	}
	if text := p.logs("killer"); strings.Contains(text, "fuse-overlayfs") || !strings.Contains(text, "works\n") || !strings.Contains(text, "sleep 1000") {
		t.Errorf("an app that looks for all processes and kills those that it can prints\n%s", text)
	}
	if log := p.stagerLog(); !strings.Contains(log, "driver=fuse-overlayfs") {
		t.Errorf("the stager's log has no driver=fuse-overlayfs:\n%s", log)
	}
	helpers := fuseHelpers(b)
	if len(helpers) != 2 {
		t.Fatalf("two apps' roots have %d helpers: %v", len(helpers), helpers)
	}
	p.losesRoot("other", helpers)
	if r := p.exec("killer", "/bin/sh", "-c", "echo too >>/new && cat /new"); r.stdout != "works\ntoo\n" {
		t.Errorf("a command in an app whose root has a helper: %+v", r)
	}
	p.losesRoot("killer", helpers)
	if r := p.exec("killer", "/bin/cat", "/etc/passwd"); r.code == 0 {
		t.Errorf("a command in an app without its root: %+v", r)
	}
	if s := p.status()["killer"]; s.PID == 0 {
		t.Errorf("status of the app without its root: %+v", s)
	}
	p.note()
	if err := unix.Kill(p.stager, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.checkProcesses()
	if left := fuseHelpers(b); len(left) != 0 {
		t.Errorf("helpers are left of a killed stager: %v", left)
	}
	eventually(t, "the daemon knows", func() bool {
		all := b.ps()
		return len(all) == 0 || all[0].State != "running"
	})
	b.must("gc")
	b.checkGone()
}

// losesRoot kills an app's helper and waits until the stager logs it.
func (p *pod) losesRoot(app string, helpers map[string]int) {
	p.t.Helper()
	if helpers[app] == 0 {
		p.t.Fatalf("app %s is not among those of the helpers %v", app, helpers)
	}
	if err := unix.Kill(helpers[app], unix.SIGKILL); err != nil {
		p.t.Fatalf("kill the helper of app %s: %v", app, err)
	}
	eventually(p.t, "the stager logs that the root of app "+app+" is lost", func() bool {
		return strings.Contains(p.stagerLog(), `msg="root file system is lost: accesses to it return ENOTCONN" app=`+app)
	})
}

// fuseHelpers returns the machine's helpers, by the path of the scratch folder that their
// descriptor 4 is.
func fuseHelpers(b *machine) map[string]int {
	found := map[string]int{}
	for _, pid := range b.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a gone one has none
		if strings.Contains(string(line), "/fuse-overlayfs\x00") {
			scratch, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/4", pid))
			found[filepath.Base(scratch)] = pid
		}
	}
	return found
}
