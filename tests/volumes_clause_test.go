package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// sleeping is an app that only is there, with the mounts given.
func sleeping(name string, mounts ...any) harness.AppDoc {
	app := suite.Shell(name, "exec sleep 1000")
	app.Mounts = mounts
	return app
}

// content is what a file of the host has.
func content(b *harness.Machine, path ...string) string {
	b.T.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		b.T.Error(err)
	}
	return string(data)
}

// One volume of the host shows in the apps that mount it, and in no other; an
// app's own overrides the pod's of that name. All of them can be written to.
func TestVolumesOfPodAndAppsAreMounted(t *testing.T) {
	clause.Covers(t, "C-VOL-01", "C-VOL-10", "C-VOL-11")
	t.Parallel()
	b := suite.NewMachine(t)
	shared, own := b.Folder("shared", 0o755), b.Folder("own", 0o755)
	doc := harness.PodOf(
		sleeping("one", harness.MountDoc{Volume: "v", Path: "/v"}),
		sleeping("two", harness.MountDoc{Volume: "v", Path: "/deep/er"}, harness.MountDoc{Volume: "v", Path: "/again"}),
		sleeping("own", harness.OwnMountDoc{MountDoc: harness.MountDoc{Volume: "v", Path: "/v"}, Own: harness.VolumeDoc{Name: "v", Kind: "host", Source: own}}),
		sleeping("empty", harness.OwnMountDoc{MountDoc: harness.MountDoc{Volume: "v", Path: "/v"}, Own: harness.VolumeDoc{Name: "v", Kind: "empty", Mode: "0751"}}),
		sleeping("none"),
	)
	doc.Volumes = []harness.VolumeDoc{{Name: "v", Kind: "host", Source: shared}}
	p := b.Up("p", doc)
	for _, tt := range []struct{ app, script, want string }{
		{"one", "echo from one >/v/file; stat -c %d:%i /v", inode(t, shared)},
		{"two", "cat /deep/er/file /again/file; echo from two >/again/file; stat -c %d:%i /deep/er", "from one\nfrom one\n" + inode(t, shared)},
		{"one", "cat /v/file", "from two\n"},
		{"own", "ls -A /v; echo from own >/v/file; stat -c %d:%i /v", inode(t, own)},
		{"empty", "ls -A /v; stat -c '%a %u %g' /v; echo from empty >/v/file", "751 0 0\n"},
		{"none", "ls -d /v /deep /again 2>/dev/null; true", ""},
	} {
		if have := succeeds(p, tt.app, tt.script); have != tt.want {
			t.Errorf("app %s says %q, want %q", tt.app, have, tt.want)
		}
	}
	if one, other := content(b, shared, "file"), content(b, own, "file"); one != "from two\n" || other != "from own\n" {
		t.Errorf("the host has %q and %q", one, other)
	}
	p.Stop()
}

// inode is a file's device and number as stat -c %d:%i prints it.
func inode(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d\n", stat.Dev, stat.Ino)
}

// A mount that would hide another, or be in it, is refused, also by links of the image.
func TestTargetsInsideEachOtherAreRefused(t *testing.T) {
	clause.Covers(t, "C-VOL-05")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	image := linkedImage(b, "linked", "link", "/real")
	dir := b.Folder("volume", 0o755)
	for i, tt := range []struct{ one, other string }{
		{"/d", "/d/"}, {"/d", "/d/e/f"}, {"/d/e", "/x/../d"}, {"/link", "/real"}, {"/real/sub", "/link"},
	} {
		app := sleeping("a", harness.MountDoc{Volume: "v", Path: tt.one}, harness.MountDoc{Volume: "e", Path: tt.other})
		app.Image = image
		doc := harness.PodOf(app)
		doc.Volumes = []harness.VolumeDoc{{Name: "v", Kind: "host", Source: dir}, {Name: "e", Kind: "empty"}}
		b.Refuse(fmt.Sprint("p", i), doc, `"a"`, filepath.Clean(tt.one), filepath.Clean(tt.other))
	}
}

// Neither a pod's start nor its end makes, takes away or changes a path of the
// host: not in volumes, nor beside them, nor where a volume should come from.
func TestNoVolumeIsMadeOnTheHost(t *testing.T) {
	clause.Covers(t, "C-VOL-07")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("host", 0o755)
	b.Folder("host/volume", 0o700)
	b.Folder("host/volume/sub", 0o755)
	file := b.Write("host/file", "the host's\n")
	look := func() map[string]harness.FileFacts {
		all := make(map[string]harness.FileFacts)
		if err := harness.AddFiles(all, dir, true); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := look()
	app := sleeping("a", harness.MountDoc{Volume: "v", Path: "/a/b"}, harness.MountDoc{Volume: "sub", Path: "/etc"}, harness.MountDoc{Volume: "f", Path: "/etc-file"}, harness.MountDoc{Volume: "e", Path: "/e"})
	app.App.WorkingDirectory = "/a/b/sub"
	app.App.EventHandlers = []harness.HandlerDoc{{Name: "post-stop", Exec: []string{"/bin/ls", "/a/b/sub", "/etc"}}}
	doc := harness.PodOf(app)
	doc.Volumes = []harness.VolumeDoc{
		{Name: "v", Kind: "host", Source: filepath.Join(dir, "volume")},
		{Name: "sub", Kind: "host", Source: filepath.Join(dir, "volume/sub"), ReadOnly: true},
		{Name: "f", Kind: "host", Source: file},
		{Name: "e", Kind: "empty"},
	}
	b.Up("p", doc).Stop()
	app.App.WorkingDirectory = "/a/b/missing"
	b.Refuse("working-directory", doc, "/a/b/missing")
	doc.Volumes[0].Source = filepath.Join(dir, "missing/too")
	b.Refuse("source", doc, `"v"`, "missing/too")
	for _, change := range harness.Compare(before, look()) {
		t.Error(change)
	}
}

// underUmask is a run of the launcher with another umask.
func underUmask(b *harness.Machine, umask string, args ...string) *exec.Cmd {
	cmd := b.Command(args...)
	cmd.Args = append([]string{"sh", "-c", `umask "$0"; exec "$@"`, umask}, cmd.Args...)
	cmd.Path = "/bin/sh"
	return cmd
}

// An empty volume has the mode and owner given, whatever the umask; apps share
// it, also after the end of the one that wrote; the next pod has it empty.
func TestEmptyVolumesAreNewForEachPod(t *testing.T) {
	clause.Covers(t, "C-VOL-12")
	t.Parallel()
	b := suite.NewMachine(t)
	seven, eight := 7, 8
	mounts := []any{harness.MountDoc{Volume: "plain", Path: "/plain"}, harness.MountDoc{Volume: "given", Path: "/given"}}
	one := suite.Shell("one", "ls -A /plain /given; stat -c '%a %u %g' /plain /given; echo shared >/plain/file")
	two := sleeping("two", mounts...)
	one.Mounts = mounts
	doc := harness.PodOf(one, two)
	doc.Volumes = []harness.VolumeDoc{
		{Name: "plain", Kind: "empty"}, {Name: "given", Kind: "empty", Mode: "3753", UID: &seven, GID: &eight},
	}
	path := b.Write("p.json", doc)
	for _, umask := range []string{"0777", "0"} {
		r := harness.Finish(t, underUmask(b, umask, "run", "--json", "--detach", path))
		if r.Code != 0 {
			t.Fatalf("umask %s: %+v", umask, r)
		}
		p := b.Adopt(r.Stdout)
		p.Exited("one")
		if diff := cmp.Diff("/given:\n\n/plain:\n755 0 0\n3753 7 8\n", p.Logs("one")); diff != "" {
			t.Errorf("umask %s (-want +have): %s", umask, diff)
		}
		if have := succeeds(p, "two", "cat /plain/file; stat -c '%a %u %g' /plain /given"); have != "shared\n755 0 0\n3753 7 8\n" {
			t.Errorf("umask %s: the other app says %q", umask, have)
		}
		p.Stop()
	}
	doc.Volumes[0] = harness.VolumeDoc{Name: "plain", Kind: "host", Source: b.Dir, Mode: "0700"}
	b.Refuse("mode", doc, "mode for host volume")
	doc.Volumes[0] = harness.VolumeDoc{Name: "plain", Kind: "host", Source: b.Dir, UID: &seven}
	b.Refuse("uid", doc, "uid for host volume")
}

// A Kurma daemon mounts a folder for each volume of the pod, whatever its kind. Such a folder is an empty volume of the
// pod only if the daemon says in stagerConfig that it has made the folder for the pod.
func TestEmptyVolumesUnderADaemonThatMountsEachVolume(t *testing.T) {
	clause.Covers(t, "C-VOL-12")
	t.Parallel()
	seven := 7
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprint(made), func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			app := suite.Shell("a", "ls -A /v; stat -c '%a %u %g' /v; touch /v/mine; echo done; exec sleep 1000")
			app.Mounts = []any{harness.MountDoc{Volume: "v", Path: "/v"}}
			pod := harness.PodOf(app)
			pod.Volumes = []harness.VolumeDoc{{Name: "v", Kind: "empty", Mode: "1770", UID: &seven}}
			doc, want, mine := harness.DocumentOf(pod, b.BusyboxLayer()), []string{"1770 7 0", "done"}, false
			if made {
				doc["stagerConfig"] = map[string]any{"gracePeriod": "1s", "podVolumes": []string{"v"}}
				want, mine = []string{"earlier", "700 0 0", "done"}, true
			}
			d := b.Direct(doc, b.BusyboxLayer())
			folder := d.Plan.Volumes["v"]
			d.StartReady()
			d.Sees("a", "done\n")
			var have []string
			for line := range strings.Lines(d.AppLog("a")) {
				have = append(have, strings.TrimSpace(strings.SplitN(line, " ", 4)[3]))
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
			if _, err := os.Stat(filepath.Join(folder, "mine")); (err == nil) != mine {
				t.Errorf("the daemon's folder has the app's file: %v, want %t", err, mine)
			}
			d.Stop()
		})
	}
}

// A mount point without a volume gets one for this app only, with a copy of what the image has there, new for each pod.
// The log says so.
func TestUnfilledMountPointGetsAnEmptyVolume(t *testing.T) {
	clause.Covers(t, "C-VOL-14")
	t.Parallel()
	b := suite.NewMachine(t)
	script := "test -e /etc/file && echo old; test -e /etc/group && echo copied; stat -c '%a %u %g' /etc; echo $AC_APP_NAME >/etc/file; cat /etc/file; touch /bin/x"
	apps := []harness.AppDoc{suite.Shell("one", script), suite.Shell("two", script)}
	for _, app := range apps {
		app.App.MountPoints = []any{map[string]any{"name": "unfilled", "path": "/etc"}}
	}
	for _, name := range []string{"first", "second"} {
		p := b.Up(name, harness.PodOf(apps...))
		for _, app := range apps {
			p.Exited(app.Name)
			if have := p.Logs(app.Name); have != "copied\n755 0 0\n"+app.Name+"\n" {
				t.Errorf("app %s of the %s pod says %q", app.Name, name, have)
			}
		}
		if log := p.StagerLog(); strings.Count(log, "no volume for mount point") != 2 || !strings.Contains(log, "unfilled") || !strings.Contains(log, "/etc") {
			t.Errorf("warnings:\n%s", log)
		}
		p.Stop()
	}
}
