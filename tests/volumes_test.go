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
	"kurma.io/stager/tests/harness"
)

// A volume of the host includes its submounts, which are writable. If the volume or its mount point is
// read-only, the submounts are read-only as well. A volume that is not recursive has no submounts.
func TestMountsInVolumesFollow(t *testing.T) {
	clause.Covers(t, "C-VOL-11", "C-VOL-13", "C-VOL-15", "C-VOL-16")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("volume", 0o755)
	b.MountTmpfs(b.Folder("volume/inner", 0o755), "")
	b.MountTmpfs(b.Folder("volume/inner/most", 0o755), "")
	if err := os.WriteFile(filepath.Join(dir, "inner/most/seen"), []byte("inside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	no := false
	script := `for f in /v/x /v/inner/x /v/inner/most/x; do echo $AC_APP_NAME 2>/dev/null >>$f; echo $?; done; cat /v/inner/most/seen 2>/dev/null`
	wants := map[string]string{
		"writable": "0\n0\n0\ninside\n", "read-only": "1\n1\n1\ninside\n", "point": "1\n1\n1\ninside\n",
		"flat": "0\n0\n1\n", "flat-read-only": "1\n1\n1\n",
	}
	doc := harness.PodOf()
	for name := range wants {
		app := suite.Shell(name, script)
		app.Mounts = []any{harness.MountDoc{Volume: name, Path: "/v"}}
		doc.Apps = append(doc.Apps, app)
		doc.Volumes = append(doc.Volumes, harness.VolumeDoc{Name: name, Kind: "host", Source: dir, ReadOnly: strings.HasSuffix(name, "read-only")})
		if i := len(doc.Apps) - 1; name == "point" {
			doc.Apps[i].App.MountPoints = []any{map[string]any{"name": "other", "path": "/v/", "readOnly": true}}
		} else if strings.HasPrefix(name, "flat") {
			doc.Volumes[i].Recursive = &no
		}
	}
	p := b.Up("p", doc)
	for name, want := range wants {
		p.Exited(name)
		if have := p.Logs(name); have != want {
			t.Errorf("volume %s: %q, want %q", name, have, want)
		}
	}
	for file, want := range map[string][]string{"x": {"flat", "writable"}, "inner/x": {"writable"}, "inner/most/x": {"writable"}} {
		if have := strings.Fields(content(b, dir, file)); !slices.Equal(slices.Sorted(slices.Values(have)), want) {
			t.Errorf("the host has %q in %s, want %q", have, file, want)
		}
	}
	p.Stop()
}

// A mount point of the image can be read-only. The stager makes missing targets: 0755, owned by root.
func TestMountTargetsAreMadeAsAsked(t *testing.T) {
	clause.Covers(t, "C-VOL-02", "C-VOL-12", "C-VOL-15")
	t.Parallel()
	b := suite.NewMachine(t)
	dir, file := b.Folder("volume", 0o777), b.Write("file", "from the host\n")
	app := suite.Shell("a", `touch /ro/x 2>&1; stat -c '%a %u %g' /deep /deep/er; cat /etc/given /bin/sh/../x 2>/dev/null; ls -d /deep/er/target; echo done; exec sleep 1000`)
	app.App.MountPoints = []any{
		map[string]any{"name": "data", "path": "/ro", "readOnly": true},
		map[string]any{"name": "unfilled", "path": "/unfilled"},
	}
	app.Mounts = []any{harness.MountDoc{Volume: "data", Path: "/ro"}, harness.MountDoc{Volume: "file", Path: "/etc/given"}, harness.MountDoc{Volume: "empty", Path: "/deep/er/target"}}
	other := suite.Shell("b", `echo shared >/e/shared; stat -c '%a' /e; echo done; exec sleep 1000`)
	other.Mounts = []any{harness.MountDoc{Volume: "empty", Path: "/e"}}
	doc := harness.PodOf(app, other)
	doc.Volumes = []harness.VolumeDoc{
		{Name: "data", Kind: "host", Source: dir}, {Name: "file", Kind: "host", Source: file}, {Name: "empty", Kind: "empty", Mode: "1777"},
	}
	p := b.Up("p", doc)
	p.Sees("a", "done\n")
	for _, want := range []string{"Read-only file system", "755 0 0\n755 0 0\n", "from the host\n", "/deep/er/target\n"} {
		if log := p.Logs("a"); !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	p.Sees("b", "1777\ndone\n")
	if r := p.Exec("a", "cat", "/deep/er/target/shared"); r.Stdout != "shared\n" {
		t.Errorf("the volume is not shared: %+v", r)
	}
	if log := p.StagerLog(); !strings.Contains(log, "unfilled") {
		t.Errorf("no warning of the mount point that nothing fills:\n%s", log)
	}
	p.Stop()
}

// The daemon mounts something into a shared volume of a running pod, and the app sees it.
func TestALateMountReachesTheApp(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("shared", 0o755)
	b.MountTmpfs(dir, "")
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "late"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")).HostVolume("v", dir, "/v"))
	b.MountTmpfs(filepath.Join(dir, "late"), "")
	if err := os.WriteFile(filepath.Join(dir, "late/file"), []byte("came late\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := p.Exec("a", "cat", "/v/late/file"); r.Stdout != "came late\n" {
		t.Errorf("the app sees %+v", r)
	}
	p.Stop()
}

func TestHostVolumesHaveTheFlagsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"volumeFlags": ["nosuid", "nodev"]}`))
	doc := harness.PodOf(suite.Command("a", "sleep", "1000")).HostVolume("data", b.Folder("data", 0o777), "/files").HostVolume("device", "/dev/full", "/full")
	p := b.Up("p", doc)
	succeeds(p, "a", "grep -E ' /files .*nosuid,nodev' /proc/self/mounts && grep ' /full .*nosuid' /proc/self/mounts && : </full")
	p.Stop()
}

func TestMissingVolumeSourceIsAnError(t *testing.T) {
	clause.Covers(t, "C-VOL-06")
	t.Parallel()
	b := suite.NewMachine(t)
	missing := filepath.Join(b.Dir, "missing")
	b.Refuse("p", harness.PodOf(suite.Shell("a", "true")).HostVolume("gone", missing, "/v"), "gone", missing)
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
			b := suite.NewMachine(t)
			doc := harness.PodOf(suite.Shell("a", "exec sleep 1000"), suite.Shell("b", "exec sleep 1000"))
			if host != "" {
				doc.Isolators = []any{harness.Isolator("os/linux/namespaces", map[string]string{host: "host"})}
			}
			before, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			p := b.Up("other-name", doc)
			for _, kind := range harness.NamespaceKinds() {
				ours, err := os.Readlink("/proc/self/ns/" + kind)
				if err != nil {
					t.Fatal(err)
				}
				one := strings.TrimSpace(p.Exec("a", "readlink", "/proc/self/ns/"+kind).Stdout)
				two := strings.TrimSpace(p.Exec("b", "readlink", "/proc/self/ns/"+kind).Stdout)
				if (one == two) != (kind != "mnt") || (one == ours) != (kind == host) || one == "" {
					t.Errorf("%s: app a %s, app b %s, host %s", kind, one, two, ours)
				}
			}
			if after, err := os.Hostname(); after != before {
				t.Errorf("the host's name is now %q, %v", after, err)
			}
			p.Stop()
		})
	}
}

// Two pods use the same layers, each with a clean copy, and a third pod does not see
// their changes.
func TestTwoPodsShareLayersButNoChanges(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	script := `cat /mine 2>/dev/null; echo $0 >/mine; rm -r /tmp /etc/passwd; ls -d /tmp 2>&1; exec sleep 1000`
	one, two := suite.Shell("a", script), suite.Shell("a", script)
	p, q := b.Up("one", harness.PodOf(one)), b.Up("two", harness.PodOf(two))
	for _, pod := range []*harness.Pod{p, q} {
		pod.Sees("a", "No such file")
		if log := pod.Logs("a"); strings.Count(log, "\n") != 1 {
			t.Errorf("%s: not a clean copy:\n%s", pod.Name, log)
		}
	}
	p.Stop()
	r := b.Up("three", harness.PodOf(suite.Shell("a", "ls -d /mine /etc/passwd /tmp; exec sleep 1000")))
	r.Sees("a", "/etc/passwd\n/tmp\n")
	q.Stop()
	r.Stop()
}

func TestTenPodsStartAtOnce(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	path := b.Write("p.json", harness.PodOf(suite.Shell("a", "exec sleep 1000"), suite.Shell("b", "exec sleep 1000")))
	results := make(chan harness.Result, 10)
	for i := range cap(results) {
		cmd := b.Command("run", "--detach", "--name", fmt.Sprint("p", i), path)
		go func() { results <- harness.Finish(t, cmd) }()
	}
	for range cap(results) {
		if r := <-results; r.Code != 0 {
			t.Errorf("exit status %d: %s", r.Code, r.Stderr)
		}
	}
	b.Note()
	args := []string{"rm", "--force"}
	for _, info := range b.PS() {
		args = append(args, info.UUID)
	}
	b.Must(args...)
	b.CheckGone()
}
