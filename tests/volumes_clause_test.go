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
)

// sleeping is an app that only is there, with the mounts given.
func sleeping(name string, mounts ...any) appDoc {
	app := shell(name, "exec sleep 1000")
	app.Mounts = mounts
	return app
}

// content is what a file of the host has.
func (b *machine) content(path ...string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		b.t.Error(err)
	}
	return string(data)
}

// One volume of the host shows in the apps that mount it, and in no other; an
// app's own overrides the pod's of that name. All of them can be written to.
func TestVolumesOfPodAndAppsAreMounted(t *testing.T) {
	clause.Covers(t, "C-VOL-01", "C-VOL-10", "C-VOL-11")
	t.Parallel()
	b := newMachine(t)
	shared, own := b.folder("shared", 0o755), b.folder("own", 0o755)
	doc := podOf(
		sleeping("one", mountDoc{"v", "/v"}),
		sleeping("two", mountDoc{"v", "/deep/er"}, mountDoc{"v", "/again"}),
		sleeping("own", ownMountDoc{mountDoc{"v", "/v"}, volumeDoc{Name: "v", Kind: "host", Source: own}}),
		sleeping("empty", ownMountDoc{mountDoc{"v", "/v"}, volumeDoc{Name: "v", Kind: "empty", Mode: "0751"}}),
		sleeping("none"),
	)
	doc.Volumes = []volumeDoc{{Name: "v", Kind: "host", Source: shared}}
	p := b.up("p", doc)
	for _, tt := range []struct{ app, script, want string }{
		{"one", "echo from one >/v/file; stat -c %d:%i /v", inode(t, shared)},
		{"two", "cat /deep/er/file /again/file; echo from two >/again/file; stat -c %d:%i /deep/er", "from one\nfrom one\n" + inode(t, shared)},
		{"one", "cat /v/file", "from two\n"},
		{"own", "ls -A /v; echo from own >/v/file; stat -c %d:%i /v", inode(t, own)},
		{"empty", "ls -A /v; stat -c '%a %u %g' /v; echo from empty >/v/file", "751 0 0\n"},
		{"none", "ls -d /v /deep /again 2>/dev/null; true", ""},
	} {
		if have := p.succeeds(tt.app, tt.script); have != tt.want {
			t.Errorf("app %s says %q, want %q", tt.app, have, tt.want)
		}
	}
	if one, other := b.content(shared, "file"), b.content(own, "file"); one != "from two\n" || other != "from own\n" {
		t.Errorf("the host has %q and %q", one, other)
	}
	p.stop()
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
	b := newMachine(t, ownStore())
	image := b.linkedImage("linked", "link", "/real")
	dir := b.folder("volume", 0o755)
	for i, tt := range []struct{ one, other string }{
		{"/d", "/d/"}, {"/d", "/d/e/f"}, {"/d/e", "/x/../d"}, {"/link", "/real"}, {"/real/sub", "/link"},
	} {
		app := sleeping("a", mountDoc{"v", tt.one}, mountDoc{"e", tt.other})
		app.Image = image
		doc := podOf(app)
		doc.Volumes = []volumeDoc{{Name: "v", Kind: "host", Source: dir}, {Name: "e", Kind: "empty"}}
		b.refuse(fmt.Sprint("p", i), doc, `"a"`, filepath.Clean(tt.one), filepath.Clean(tt.other))
	}
}

// Neither a pod's start nor its end makes, takes away or changes a path of the
// host: not in volumes, nor beside them, nor where a volume should come from.
func TestNoVolumeIsMadeOnTheHost(t *testing.T) {
	clause.Covers(t, "C-VOL-07")
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("host", 0o755)
	b.folder("host/volume", 0o700)
	b.folder("host/volume/sub", 0o755)
	file := b.write("host/file", "the host's\n")
	look := func() map[string]fileFacts {
		all := make(map[string]fileFacts)
		if err := addFiles(all, dir, true); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := look()
	app := sleeping("a", mountDoc{"v", "/a/b"}, mountDoc{"sub", "/etc"}, mountDoc{"f", "/etc-file"}, mountDoc{"e", "/e"})
	app.App.WorkingDirectory = "/a/b/sub"
	app.App.EventHandlers = []handlerDoc{{"post-stop", []string{"/bin/ls", "/a/b/sub", "/etc"}}}
	doc := podOf(app)
	doc.Volumes = []volumeDoc{
		{Name: "v", Kind: "host", Source: filepath.Join(dir, "volume")},
		{Name: "sub", Kind: "host", Source: filepath.Join(dir, "volume/sub"), ReadOnly: true},
		{Name: "f", Kind: "host", Source: file},
		{Name: "e", Kind: "empty"},
	}
	b.up("p", doc).stop()
	app.App.WorkingDirectory = "/a/b/missing"
	b.refuse("working-directory", doc, "/a/b/missing")
	doc.Volumes[0].Source = filepath.Join(dir, "missing/too")
	b.refuse("source", doc, `"v"`, "missing/too")
	for _, change := range compare(before, look()) {
		t.Error(change)
	}
}

// underUmask is a run of the launcher with another umask.
func (b *machine) underUmask(umask string, args ...string) *exec.Cmd {
	cmd := b.command(args...)
	cmd.Args = append([]string{"sh", "-c", `umask "$0"; exec "$@"`, umask}, cmd.Args...)
	cmd.Path = "/bin/sh"
	return cmd
}

// An empty volume has the mode and owner given, whatever the umask; apps share
// it, also after the end of the one that wrote; the next pod has it empty.
func TestEmptyVolumesAreNewForEachPod(t *testing.T) {
	clause.Covers(t, "C-VOL-12")
	t.Parallel()
	b := newMachine(t)
	seven, eight := 7, 8
	mounts := []any{mountDoc{"plain", "/plain"}, mountDoc{"given", "/given"}}
	one := shell("one", "ls -A /plain /given; stat -c '%a %u %g' /plain /given; echo shared >/plain/file")
	two := sleeping("two", mounts...)
	one.Mounts = mounts
	doc := podOf(one, two)
	doc.Volumes = []volumeDoc{
		{Name: "plain", Kind: "empty"}, {Name: "given", Kind: "empty", Mode: "3753", UID: &seven, GID: &eight},
	}
	path := b.write("p.json", doc)
	for _, umask := range []string{"0777", "0"} {
		r := finish(t, b.underUmask(umask, "run", "--json", "--detach", path))
		if r.code != 0 {
			t.Fatalf("umask %s: %+v", umask, r)
		}
		p := b.adopt(r.stdout)
		p.exited("one")
		if diff := cmp.Diff("/given:\n\n/plain:\n755 0 0\n3753 7 8\n", p.logs("one")); diff != "" {
			t.Errorf("umask %s (-want +have): %s", umask, diff)
		}
		if have := p.succeeds("two", "cat /plain/file; stat -c '%a %u %g' /plain /given"); have != "shared\n755 0 0\n3753 7 8\n" {
			t.Errorf("umask %s: the other app says %q", umask, have)
		}
		p.stop()
	}
	doc.Volumes[0] = volumeDoc{Name: "plain", Kind: "host", Source: b.dir, Mode: "0700"}
	b.refuse("mode", doc, "mode for host volume")
	doc.Volumes[0] = volumeDoc{Name: "plain", Kind: "host", Source: b.dir, UID: &seven}
	b.refuse("uid", doc, "uid for host volume")
}

// A mount point without a volume gets an empty one: for this app only, without the image's files,
// new for each pod. The log says so.
func TestUnfilledMountPointGetsAnEmptyVolume(t *testing.T) {
	clause.Covers(t, "C-VOL-14")
	t.Parallel()
	b := newMachine(t)
	script := "ls -A /etc; stat -c '%a %u %g' /etc; echo $AC_APP_NAME >/etc/file; cat /etc/file; touch /bin/x"
	apps := []appDoc{shell("one", script), shell("two", script)}
	for _, app := range apps {
		app.App.MountPoints = []any{map[string]any{"name": "unfilled", "path": "/etc"}}
	}
	for _, name := range []string{"first", "second"} {
		p := b.up(name, podOf(apps...))
		for _, app := range apps {
			p.exited(app.Name)
			if have := p.logs(app.Name); have != "755 0 0\n"+app.Name+"\n" {
				t.Errorf("app %s of the %s pod says %q", app.Name, name, have)
			}
		}
		if log := p.stagerLog(); strings.Count(log, "no volume for mount point") != 2 || !strings.Contains(log, "unfilled") || !strings.Contains(log, "/etc") {
			t.Errorf("warnings:\n%s", log)
		}
		p.stop()
	}
}
