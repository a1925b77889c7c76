package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
)

// mountTmpfs mounts a tmpfs, which is unmounted at the test's end.
func (b *machine) mountTmpfs(dir, options string) {
	b.t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		b.t.Fatal(err)
	}
	// The unmount comes after the pods are gone, and before the machine looks for mounts that are left.
	b.unmount = append(b.unmount, dir)
}

// A volume of the host includes its submounts, which are writable. If the volume or its mount point is
// read-only, the submounts are read-only as well. A volume that is not recursive has no submounts.
func TestMountsInVolumesFollow(t *testing.T) {
	clause.Covers(t, "C-VOL-11", "C-VOL-13", "C-VOL-15", "C-VOL-16")
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("volume", 0o755)
	b.mountTmpfs(b.folder("volume/inner", 0o755), "")
	b.mountTmpfs(b.folder("volume/inner/most", 0o755), "")
	if err := os.WriteFile(filepath.Join(dir, "inner/most/seen"), []byte("inside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	no := false
	script := `for f in /v/x /v/inner/x /v/inner/most/x; do echo $AC_APP_NAME 2>/dev/null >>$f; echo $?; done; cat /v/inner/most/seen 2>/dev/null`
	wants := map[string]string{
		"writable": "0\n0\n0\ninside\n", "read-only": "1\n1\n1\ninside\n", "point": "1\n1\n1\ninside\n",
		"flat": "0\n0\n1\n", "flat-read-only": "1\n1\n1\n",
	}
	doc := podOf()
	for name := range wants {
		app := shell(name, script)
		app.Mounts = []any{mountDoc{name, "/v"}}
		doc.Apps = append(doc.Apps, app)
		doc.Volumes = append(doc.Volumes, volumeDoc{Name: name, Kind: "host", Source: dir, ReadOnly: strings.HasSuffix(name, "read-only")})
		if i := len(doc.Apps) - 1; name == "point" {
			doc.Apps[i].App.MountPoints = []any{map[string]any{"name": "other", "path": "/v/", "readOnly": true}}
		} else if strings.HasPrefix(name, "flat") {
			doc.Volumes[i].Recursive = &no
		}
	}
	p := b.up("p", doc)
	for name, want := range wants {
		p.exited(name)
		if have := p.logs(name); have != want {
			t.Errorf("volume %s: %q, want %q", name, have, want)
		}
	}
	for file, want := range map[string][]string{"x": {"flat", "writable"}, "inner/x": {"writable"}, "inner/most/x": {"writable"}} {
		if have := strings.Fields(b.content(dir, file)); !slices.Equal(slices.Sorted(slices.Values(have)), want) {
			t.Errorf("the host has %q in %s, want %q", have, file, want)
		}
	}
	p.stop()
}

// A mount point of the image can be read-only. The stager makes missing targets: 0755, owned by root.
func TestMountTargetsAreMadeAsAsked(t *testing.T) {
	clause.Covers(t, "C-VOL-02", "C-VOL-12", "C-VOL-15")
	t.Parallel()
	b := newMachine(t)
	dir, file := b.folder("volume", 0o777), b.write("file", "from the host\n")
	app := shell("a", `touch /ro/x 2>&1; stat -c '%a %u %g' /deep /deep/er; cat /etc/given /bin/sh/../x 2>/dev/null; ls -d /deep/er/target; echo done; exec sleep 1000`)
	app.App.MountPoints = []any{
		map[string]any{"name": "data", "path": "/ro", "readOnly": true},
		map[string]any{"name": "unfilled", "path": "/unfilled"},
	}
	app.Mounts = []any{mountDoc{"data", "/ro"}, mountDoc{"file", "/etc/given"}, mountDoc{"empty", "/deep/er/target"}}
	other := shell("b", `echo shared >/e/shared; stat -c '%a' /e; echo done; exec sleep 1000`)
	other.Mounts = []any{mountDoc{"empty", "/e"}}
	doc := podOf(app, other)
	doc.Volumes = []volumeDoc{
		{Name: "data", Kind: "host", Source: dir}, {Name: "file", Kind: "host", Source: file}, {Name: "empty", Kind: "empty", Mode: "1777"},
	}
	p := b.up("p", doc)
	p.sees("a", "done\n")
	for _, want := range []string{"Read-only file system", "755 0 0\n755 0 0\n", "from the host\n", "/deep/er/target\n"} {
		if log := p.logs("a"); !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	p.sees("b", "1777\ndone\n")
	if r := p.exec("a", "cat", "/deep/er/target/shared"); r.stdout != "shared\n" {
		t.Errorf("the volume is not shared: %+v", r)
	}
	if log := p.stagerLog(); !strings.Contains(log, "unfilled") {
		t.Errorf("no warning of the mount point that nothing fills:\n%s", log)
	}
	p.stop()
}

// The daemon mounts something into a shared volume of a running pod, and the app sees it.
func TestALateMountReachesTheApp(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("shared", 0o755)
	b.mountTmpfs(dir, "")
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "late"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := b.up("p", podOf(shell("a", "exec sleep 1000")).hostVolume("v", dir, "/v"))
	b.mountTmpfs(filepath.Join(dir, "late"), "")
	if err := os.WriteFile(filepath.Join(dir, "late/file"), []byte("came late\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := p.exec("a", "cat", "/v/late/file"); r.stdout != "came late\n" {
		t.Errorf("the app sees %+v", r)
	}
	p.stop()
}

func TestHostVolumesHaveTheFlagsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newMachine(t, stagerConfig(`{"volumeFlags": ["nosuid", "nodev"]}`))
	doc := podOf(command("a", "sleep", "1000")).hostVolume("data", b.folder("data", 0o777), "/files").hostVolume("device", "/dev/full", "/full")
	p := b.up("p", doc)
	p.succeeds("a", "grep -E ' /files .*nosuid,nodev' /proc/self/mounts && grep ' /full .*nosuid' /proc/self/mounts && : </full")
	p.stop()
}

func TestMissingVolumeSourceIsAnError(t *testing.T) {
	clause.Covers(t, "C-VOL-06")
	t.Parallel()
	b := newMachine(t)
	missing := filepath.Join(b.dir, "missing")
	b.refuse("p", podOf(shell("a", "true")).hostVolume("gone", missing, "/v"), "gone", missing)
	if _, err := os.Lstat(missing); err == nil {
		t.Error("it was made")
	}
}

// The apps of a pod share all namespaces but the mount namespace; the host has other ones.
func TestAppsShareAllNamespacesButMounts(t *testing.T) {
	clause.Covers(t, "C-NET-02")
	t.Parallel()
	for _, host := range []string{"", "pid", "ipc", "uts", "net"} {
		t.Run("host "+host, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			doc := podOf(shell("a", "exec sleep 1000"), shell("b", "exec sleep 1000"))
			if host != "" {
				doc.Isolators = []any{isolator("os/linux/namespaces", map[string]string{host: "host"})}
			}
			before, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			p := b.up("other-name", doc)
			for _, kind := range namespaceKinds() {
				ours, err := os.Readlink("/proc/self/ns/" + kind)
				if err != nil {
					t.Fatal(err)
				}
				one := strings.TrimSpace(p.exec("a", "readlink", "/proc/self/ns/"+kind).stdout)
				two := strings.TrimSpace(p.exec("b", "readlink", "/proc/self/ns/"+kind).stdout)
				if (one == two) != (kind != "mnt") || (one == ours) != (kind == host) || one == "" {
					t.Errorf("%s: app a %s, app b %s, host %s", kind, one, two, ours)
				}
			}
			if after, err := os.Hostname(); after != before {
				t.Errorf("the host's name is now %q, %v", after, err)
			}
			p.stop()
		})
	}
}

// Two pods use the same layers, each with a clean copy, and a third pod does not see
// their changes.
func TestTwoPodsShareLayersButNoChanges(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	script := `cat /mine 2>/dev/null; echo $0 >/mine; rm -r /tmp /etc/passwd; ls -d /tmp 2>&1; exec sleep 1000`
	one, two := shell("a", script), shell("a", script)
	p, q := b.up("one", podOf(one)), b.up("two", podOf(two))
	for _, pod := range []*pod{p, q} {
		pod.sees("a", "No such file")
		if log := pod.logs("a"); strings.Count(log, "\n") != 1 {
			t.Errorf("%s: not a clean copy:\n%s", pod.name, log)
		}
	}
	p.stop()
	r := b.up("three", podOf(shell("a", "ls -d /mine /etc/passwd /tmp; exec sleep 1000")))
	r.sees("a", "/etc/passwd\n/tmp\n")
	q.stop()
	r.stop()
}

func TestTenPodsStartAtOnce(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	path := b.write("p.json", podOf(shell("a", "exec sleep 1000"), shell("b", "exec sleep 1000")))
	results := make(chan result, 10)
	for i := range cap(results) {
		cmd := b.command("run", "--detach", "--name", fmt.Sprint("p", i), path)
		go func() { results <- finish(t, cmd) }()
	}
	for range cap(results) {
		if r := <-results; r.code != 0 {
			t.Errorf("exit status %d: %s", r.code, r.stderr)
		}
	}
	b.note()
	args := []string{"rm", "--force"}
	for _, info := range b.ps() {
		args = append(args, info.UUID)
	}
	b.must(args...)
	b.checkGone()
}
