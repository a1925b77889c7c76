package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// checkFuse shows that the example's helpers are out of the apps' reach, and what happens when
// one is killed, or the stager. The app "killer" ends the app "other" when it kills all that it can.
func checkFuse(t *testing.T, b *harness.Machine) {
	t.Helper()
	p := b.Up("fuse", harness.PodOf(suite.Shell("killer", `until [ -e /dev/shm/up ]; do :; done # killing the other app's start would end the pod
		for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done
		kill -9 -1
		echo works >/new && cat /new && echo "killed $((40+2))"
		exec sleep 1000`), suite.Shell("other", "echo >/dev/shm/up; while :; do sleep 1000; done")))
	p.Sees("killer", "killed 42") // the log also has the script itself
	if code, reason := p.Exited("other"); code == 0 {
		t.Errorf("the other app ended with 0, %s", reason)
	}
	if text := p.Logs("killer"); strings.Contains(text, "fuse-overlayfs") || !strings.Contains(text, "works\n") || !strings.Contains(text, "sleep 1000") {
		t.Errorf("an app that looks for all processes and kills those that it can prints\n%s", text)
	}
	if log := p.StagerLog(); !strings.Contains(log, "driver=fuse-overlayfs") {
		t.Errorf("the stager's log has no driver=fuse-overlayfs:\n%s", log)
	}
	helpers := fuseHelpers(b)
	if len(helpers) != 2 {
		t.Fatalf("two apps' roots have %d helpers: %v", len(helpers), helpers)
	}
	losesRoot(p, "other", helpers)
	if r := p.Exec("killer", "/bin/sh", "-c", "echo too >>/new && cat /new"); r.Stdout != "works\ntoo\n" {
		t.Errorf("a command in an app whose root has a helper: %+v", r)
	}
	losesRoot(p, "killer", helpers)
	if r := p.Exec("killer", "/bin/cat", "/etc/passwd"); r.Code == 0 {
		t.Errorf("a command in an app without its root: %+v", r)
	}
	if s := p.Status()["killer"]; s.PID == 0 {
		t.Errorf("status of the app without its root: %+v", s)
	}
	p.Note()
	if err := unix.Kill(p.Stager, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.CheckProcesses()
	if left := fuseHelpers(b); len(left) != 0 {
		t.Errorf("helpers are left of a killed stager: %v", left)
	}
	harness.Eventually(t, "the daemon knows", func() bool {
		all := b.PS()
		return len(all) == 0 || all[0].State != "running"
	})
	b.Must("gc")
	b.CheckGone()
}

// losesRoot kills an app's helper and waits until the stager logs it.
func losesRoot(p *harness.Pod, app string, helpers map[string]int) {
	p.T.Helper()
	if helpers[app] == 0 {
		p.T.Fatalf("app %s is not among those of the helpers %v", app, helpers)
	}
	if err := unix.Kill(helpers[app], unix.SIGKILL); err != nil {
		p.T.Fatalf("kill the helper of app %s: %v", app, err)
	}
	harness.Eventually(p.T, "the stager logs that the root of app "+app+" is lost", func() bool {
		return strings.Contains(p.StagerLog(), `msg="root file system is lost: accesses to it return ENOTCONN" app=`+app)
	})
}

// fuseHelpers returns the machine's helpers, by the path of the scratch folder that their
// descriptor 4 is.
func fuseHelpers(b *harness.Machine) map[string]int {
	found := map[string]int{}
	for _, pid := range b.Processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a gone one has none
		if strings.Contains(string(line), "/fuse-overlayfs\x00") {
			scratch, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/4", pid))
			found[filepath.Base(scratch)] = pid
		}
	}
	return found
}
