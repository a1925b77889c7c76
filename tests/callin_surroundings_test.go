package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/harness"
)

// surroundingsScript is a script that prints a process's namespaces, cgroups and limits, which must
// be the same for a command of run and the app's main process.
const surroundingsScript = `
cd /proc/self
for n in cgroup ipc mnt net pid user uts; do readlink ns/$n; done
cat cgroup limits oom_score_adj
grep -E '^(Uid|Gid|Groups|Cap.*|NoNewPrivs|Seccomp):' status
cut -d ' ' -f 1-6 mountinfo
ls -di / /dev/shm
/probe/probe session-keyring
`

// A command of run has every restriction that its app has.
func TestRunHasItsAppsSurroundings(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	testProgram(b, dir)
	plain := suite.Shell("plain", "")
	bounded := suite.Shell("bounded", "")
	bounded.App.SupplementaryGID = []int{7, 1234}
	bounded.App.Isolators = []any{
		harness.Isolator("os/linux/capabilities-retain-set", map[string]any{"set": []string{"CAP_CHOWN", "CAP_KILL"}}),
		harness.Isolator("os/linux/no-new-privileges", true),
		harness.Isolator("os/linux/seccomp-remove-set", map[string]any{"set": []string{"reboot"}, "errno": "ENOTSUP"}),
		harness.Isolator("os/linux/oom-score-adj", 567),
		harness.Isolator("resource/memory", map[string]any{"limit": "123Mi"}),
		harness.Isolator("resource/cpu", map[string]any{"limit": "700m"}),
	}
	user := suite.Shell("user", "")
	user.App.User, user.App.Group = "1000", "1000"
	readOnly := suite.Shell("read-only", "")
	readOnly.ReadOnly = true
	for _, app := range []*harness.AppDoc{&user, &readOnly} { // for their keyrings; two calls stay blocked
		app.App.Isolators = []any{harness.Isolator("os/linux/seccomp-retain-set", map[string]any{"set": []string{"@appc.io/all", "keyctl"}})}
	}
	apps := []harness.AppDoc{plain, bounded, user, readOnly}
	up := b.SignalPipe(filepath.Join(dir, "up"))
	for i := range apps {
		apps[i].App.Exec[2] = surroundingsScript + "echo up >/probe/up; exec sleep 1000"
	}
	p := b.Up("pod", harness.PodOf(apps...).HostVolume("sync", dir, "/probe"))
	for range apps {
		up.Line()
	}
	rings := map[string]bool{}
	for _, app := range apps {
		s := asRoot(surroundingsScript)
		s.User, s.Group, s.SupplementaryGID = app.App.User, app.App.Group, app.App.SupplementaryGID
		have, code := run(p, app.Name, s)
		var want string
		harness.Eventually(t, "the log has the last line", func() bool {
			want = p.Logs(app.Name)
			return strings.Count(want, "\n") >= strings.Count(have, "\n")
		})
		if diff := cmp.Diff(want, have); diff != "" || code != 0 || !strings.Contains(want, "Seccomp:\t2\n") {
			t.Errorf("%s: exit status %d, the app's (-) and the run's (+):\n%s\n%s", app.Name, code, diff, want)
		}
		lines := strings.Split(strings.TrimSpace(have), "\n")
		ring := lines[len(lines)-1]
		if !strings.HasSuffix(ring, "<nil>") {
			continue // no keyrings for it
		}
		if rings[ring] {
			t.Errorf("%s has another app's session keyring %s", app.Name, ring)
		}
		rings[ring] = true
	}
	if len(rings) != 2 {
		t.Errorf("the session keyrings of two apps are %v", rings)
	}
	checkBounds(t, p)
}

// checkBounds checks some restrictions themselves: it is not enough that both processes have the
// same.
func checkBounds(t *testing.T, p *harness.Pod) {
	t.Helper()
	for _, tt := range []struct{ app, fact string }{
		{"plain", "CapBnd:\t00000000a80425fb\n"},
		{"bounded", "CapBnd:\t0000000000000021\n"},
		{"bounded", "NoNewPrivs:\t1\n"},
		{"bounded", "Groups:\t7 1234 \n"},
		{"bounded", "\n567\n"},
		{"user", "Uid:\t1000\t1000\t1000\t1000\n"},
		{"user", "CapEff:\t0000000000000000\n"},
		{"user", "NoNewPrivs:\t0\n"},
	} {
		if !strings.Contains(p.Logs(tt.app), tt.fact) {
			t.Errorf("app %s is without %q:\n%s", tt.app, tt.fact, p.Logs(tt.app))
		}
	}
	for _, script := range []string{
		"! echo x 2>/dev/null >/proc/sys/kernel/hostname",
		"! echo x 2>/dev/null >/proc/sysrq-trigger",
		"[ -z \"$(cat /proc/keys /proc/kcore /proc/timer_list 2>/dev/null)\" ]",
		"! mkdir /sys/x 2>/dev/null",
		"! grep ' - cgroup' /proc/self/mountinfo | grep -v ' ro,'",
		"[ $(cut -d: -f3 /proc/self/cgroup | sort -u) = / ]",
		"[ -z \"$(find /sys/fs/cgroup -type d -name bounded)\" ]", // another app's cgroup
		"! mkdir /sys/fs/cgroup/x /sys/fs/cgroup/memory/x 2>/dev/null",
		"! mount -t cgroup2 none /tmp 2>/dev/null",
	} {
		succeeds(p, "plain", script)
	}
	if out, code := run(p, "read-only", asRoot("echo x >/file")); code == 0 || !strings.Contains(out, "Read-only file system") {
		t.Errorf("a read-only root is written to: exit status %d, %s", code, out)
	}
}

// withKeyrings is the isolator that allows all calls, those of keyrings included.
func withKeyrings() any {
	return harness.Isolator("os/linux/seccomp-retain-set", map[string]any{"set": []string{"@appc.io/all", "keyctl", "add_key", "request_key"}})
}

// Keyrings belong to no pod: an app reaches them only if a filter lists their calls by name.
func TestAppsReachNoKeyringsUnlessAFilterListsThem(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	testProgram(b, dir)
	app := func(name string, isolators ...any) harness.AppDoc {
		a := suite.Shell(name, "/probe/probe session-keyring; exec sleep 1000")
		a.App.Isolators = isolators
		return a
	}
	set := func(kind string, calls ...string) any {
		return harness.Isolator("os/linux/seccomp-"+kind+"-set", map[string]any{"set": calls, "errno": "EPERM"})
	}
	p := b.Up("pod", harness.PodOf(
		app("default"), app("remove", set("remove", "reboot")), app("empty", set("remove", "@appc.io/empty")), app("all", set("retain", "@appc.io/all")),
		app("listed", set("retain", "@appc.io/all", "keyctl")),
	).HostVolume("sync", dir, "/probe"))
	for _, name := range []string{"default", "remove", "empty", "all"} {
		p.Sees(name, "operation not permitted")
	}
	p.Sees("listed", "<nil>")
}

// Names of keyrings apply to the whole machine: apps of the same name in two pods must not share a
// keyring.
func TestPodsDoNotShareSessionKeyrings(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	testProgram(b, dir)
	app := suite.Shell("app", "/probe/probe session-keyring; exec sleep 1000")
	app.App.Isolators = []any{withKeyrings()}
	doc := harness.PodOf(app).HostVolume("sync", dir, "/probe")
	first, second := b.Up("first", doc), b.Up("second", doc)
	first.Sees("app", "<nil>")
	second.Sees("app", "<nil>")
	if one, other := first.Logs("app"), second.Logs("app"); one == other {
		t.Errorf("two pods share the session keyring %s", one)
	}
	if own, run := first.Logs("app"), succeeds(first, "app", "/probe/probe session-keyring"); own != run {
		t.Errorf("the run has the session keyring %s, its app %s", run, own)
	}
}
