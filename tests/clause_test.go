package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
)

// says runs a pod of one app that ends, and compares what it wrote.
func says(t *testing.T, app appDoc, want string) {
	t.Helper()
	p := newMachine(t).up("pod", podOf(app))
	if code, reason := p.exited(app.Name); code != 0 {
		t.Errorf("exit code %d %s", code, reason)
	}
	if diff := cmp.Diff(want, p.logs(app.Name)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	p.stop()
}

// changed is an app after a change of its section.
func changed(app appDoc, change func(*sectionDoc)) appDoc {
	change(app.App)
	return app
}

func TestEachAppHasARootOfItsOwn(t *testing.T) {
	clause.Covers(t, "C-FS-01", "C-FS-02", "C-FS-07")
	t.Parallel()
	b := newMachine(t)
	script := "touch /$AC_APP_NAME; ls / | grep -E '^(one|two|three)$'; exec sleep 1000"
	apps := []appDoc{shell("one", script), shell("two", script), shell("three", script)}
	apps[2].ReadOnly = true
	for range 2 {
		p := b.up("pod", podOf(apps...))
		p.sees("one", "one\n")
		p.sees("two", "two\n")
		p.sees("three", "Read-only file system\n")
		for _, app := range []string{"one", "two"} {
			if text := p.logs(app); text != app+"\n" {
				t.Errorf("app %s has %q", app, text)
			}
		}
		p.stop()
	}
}

func TestVolumeTargetsAreMade(t *testing.T) {
	clause.Covers(t, "C-VOL-02", "C-VOL-03", "C-VOL-04", "C-VOL-08")
	t.Parallel()
	b := newMachine(t, ownStore())
	dir := b.folder("volume", 0o755)
	if err := os.WriteFile(filepath.Join(dir, "content"), []byte("volume's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	app := shell("a", "stat -c '%a %u %g' /x /x/y; ls /etc /file /x/y/z; cat /single; exec sleep 1000")
	app.Image = b.people()
	app.Mounts = []any{mountDoc{"v", "/x/y/z"}, mountDoc{"v", "/etc"}, mountDoc{"v", "/file"}, mountDoc{"f", "/single"}}
	doc := podOf(app)
	doc.Volumes = []volumeDoc{{Name: "v", Kind: "host", Source: dir}, {Name: "f", Kind: "host", Source: filepath.Join(dir, "content")}}
	p := b.up("pod", doc)
	p.sees("a", "755 0 0\n755 0 0\n/etc:\ncontent\n\n/file:\ncontent\n\n/x/y/z:\ncontent\nvolume's\n")
	for _, target := range []string{"/etc", "/file"} {
		if !strings.Contains(p.stagerLog(), target) {
			t.Errorf("no warning of %s:\n%s", target, p.stagerLog())
		}
	}
	p.stop()
}

func TestVolumeSourceMustNotBeASymbolicLink(t *testing.T) {
	clause.Covers(t, "C-VOL-09")
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("volume", 0o755)
	link := filepath.Join(b.dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{link, filepath.Join(link, "sub")} {
		b.refuse("pod", podOf(shell("a", "true")).hostVolume("v", source, "/v"), `"v"`, source, "symbolic link")
	}
}

func TestAppsOfAPodShareAMachine(t *testing.T) {
	clause.Covers(t, "C-NET-01", "C-NET-03")
	t.Parallel()
	b := newMachine(t)
	p := b.up("pod", podOf(
		shell("a", "trap 'echo signalled; exit 0' USR1; ip addr show lo; echo $$ >/dev/shm/a; nc -l -p 7777 -e echo hello & while :; do sleep 1000 & wait; done"),
		shell("b", "while ! [ -s /dev/shm/a ]; do usleep 1000; done; while ! nc 127.0.0.1 7777; do usleep 10000; done; kill -USR1 $(cat /dev/shm/a)"),
	))
	p.sees("b", "hello\n")
	p.sees("a", "signalled\n")
	if text := p.logs("a"); !strings.Contains(text, "inet 127.0.0.1/8") || !strings.Contains(text, "LOOPBACK,UP") {
		t.Errorf("the loopback interface is\n%s", text)
	}
	p.stop()
}

func TestAppGetsItsEnvironmentArgumentsAndDirectory(t *testing.T) {
	clause.Covers(t, "C-ENV-05", "C-EXE-01", "C-EXE-02", "C-CWD-01")
	t.Parallel()
	script := `env | cut -d = -f 1 | grep -v -E '^(SHLVL|PWD|OLDPWD)$' | sort; pwd; printf '<%s>' "$@"`
	app := changed(shell("a", ""), func(s *sectionDoc) {
		s.Exec = []string{"sh", "-c", script, "$PATH", "*", "", "a ", "`id`"}
		s.Environment = []nameValue{{"OWN", "1"}}
	})
	says(t, app, "AC_APP_NAME\nAC_METADATA_URL\nOWN\nPATH\ncontainer\n/\n<*><><a ><`id`>")
	says(t, changed(shell("a", "pwd"), func(s *sectionDoc) { s.WorkingDirectory = "/etc" }), "/etc\n")
}

func TestRelativeProgramIsFoundFromItsDirectory(t *testing.T) {
	clause.Covers(t, "C-EXE-03")
	t.Parallel()
	says(t, changed(shell("a", ""), func(s *sectionDoc) {
		s.Exec, s.WorkingDirectory = []string{"bin/busybox", "echo", "found"}, "/"
	}), "found\n")
}

// people is an image with odd users.
func (b *machine) people() imageRef {
	b.t.Helper()
	busybox := suite.ids["busybox"]
	path := b.image("people", fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/people","dependencies":[{"imageName":"kurma.io/stager/tests/busybox","imageID":%q}]}`, busybox), func(root string) error {
		file := filepath.Join(root, "file")
		return errors.Join(
			os.Mkdir(filepath.Join(root, "etc"), 0o755),
			os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("# users\nshort:x\n+nis\n1000:x:2222:3333::/:\ntwice:x:7:7::/:\ntwice:x:8:8::/:\nroot:x:0:0::/:\n"), 0o644),
			os.WriteFile(filepath.Join(root, "etc/group"), []byte("bad\nroot:x:0:\n1000:x:4444:twice\nstaff:x:55:twice,1000\n"), 0o644),
			os.WriteFile(file, nil, 0o644), os.Chown(file, 1234, 5678), os.Symlink("/file", filepath.Join(root, "link")))
	})
	id := strings.TrimSpace(b.must("image", "import", filepath.Join(suite.images, "busybox.aci"), path))
	b.layersAreNow()
	return imageRef{id[strings.LastIndexByte(id, '\n')+1:]}
}

func TestUsersAndGroupsAreResolved(t *testing.T) {
	clause.Covers(t, "C-USR-01", "C-USR-02", "C-USR-05", "C-USR-06", "C-USR-08", "C-USR-09", "C-CAP-04")
	t.Parallel()
	b := newMachine(t, ownStore())
	image := b.people()
	var apps []appDoc
	wants := map[string]string{}
	for i, tt := range []struct {
		user, group   string
		supplementary []int
		uid, gid      int
		groups        string
	}{
		{"1000", "1000", nil, 2222, 4444, ""},
		{"1001", "007", nil, 1001, 7, ""},
		{"twice", "staff", []int{9, 10}, 7, 55, "9 10 "},
		{"/file", "/file", nil, 1234, 5678, ""},
		{"/link", "0", nil, 1234, 0, ""},
		{"0", "0", nil, 0, 0, ""},
	} {
		app := shell(fmt.Sprintf("a%d", i), "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapInh|CapAmb):' /proc/self/status")
		app.Image = image
		app.App.User, app.App.Group, app.App.SupplementaryGID = tt.user, tt.group, tt.supplementary
		apps = append(apps, app)
		capabilities := "0000000000000000"
		if tt.uid == 0 {
			capabilities = "00000000a80425fb"
		}
		wants[app.Name] = fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\nGroups:\t%[3]s\nCapInh:\t0000000000000000\nCapPrm:\t%[4]s\nCapEff:\t%[4]s\nCapAmb:\t0000000000000000\n",
			tt.uid, tt.gid, tt.groups, capabilities)
	}
	p := b.up("pod", podOf(apps...))
	for name, want := range wants {
		p.exited(name)
		if diff := cmp.Diff(strings.ReplaceAll(want, " \n", "\n"), strings.ReplaceAll(p.logs(name), " \n", "\n")); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
}

func TestUnknownUsersAreRefused(t *testing.T) {
	clause.Covers(t, "C-USR-03", "C-USR-07")
	t.Parallel()
	b := newMachine(t)
	for i, user := range []string{"nosuchuser", "-1", "4294967295", "0x10", "+5", " 5", "/not/there"} {
		app := shell("a", "true")
		app.App.User = user
		b.refuse(fmt.Sprintf("pod%d", i), podOf(app), `"a"`, strings.TrimSpace(user))
	}
}

// A handler has the app's variables, root and volumes; the post-stop one runs however the app ends.
func TestHandlersHaveTheEnvironmentOfTheApp(t *testing.T) {
	clause.Covers(t, "C-EVT-02", "C-EVT-04", "C-ENV-01", "C-ENV-03", "C-ENV-04")
	t.Parallel()
	for name, end := range map[string]string{"exits 0": "exit 0", "exits 7": "exit 7", "is killed": "kill -KILL $$", "is stopped": "exec sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			dir := b.folder("shared", 0o777)
			app := changed(shell("a", "cat /before; "+end), func(s *sectionDoc) {
				s.User, s.Group, s.Environment = "1000", "1000", []nameValue{{"OWN", "variable"}}
				s.EventHandlers = []handlerDoc{
					{"pre-start", []string{"/bin/sh", "-c", `echo "$OWN $AC_APP_NAME $container ${AC_METADATA_URL%%:*} $PATH" >/before`}},
					{"post-stop", []string{"/bin/sh", "-c", "cp /before /shared/after"}},
				}
			})
			p := b.up("pod", podOf(app).hostVolume("v", dir, "/shared"))
			const want = "variable a " + names.Executor + " http /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			p.sees("a", want)
			p.stop()
			if have, err := os.ReadFile(filepath.Join(dir, "after")); err != nil || string(have) != want {
				t.Errorf("after the end there is %q, %v", have, err)
			}
		})
	}
}

func TestMainWaitsForPreStart(t *testing.T) {
	clause.Covers(t, "C-EVT-01")
	t.Parallel()
	b := newMachine(t)
	app := changed(shell("a", "ls /prepared"), func(s *sectionDoc) {
		s.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "sleep 1; touch /prepared"}}}
	})
	p := b.up("pod", podOf(app))
	if code, _ := p.exited("a"); code != 0 || p.logs("a") != "/prepared\n" {
		t.Errorf("exit status %d, %q", code, p.logs("a"))
	}
	p.stop()
}

// A post-stop handler that does not end is ended, and its app is over.
func TestPostStopHasTenSeconds(t *testing.T) {
	clause.Covers(t, "C-EVT-06")
	t.Parallel()
	b := newMachine(t)
	app := changed(shell("a", "true"), func(s *sectionDoc) {
		s.EventHandlers = []handlerDoc{{"post-stop", []string{"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1000; done"}}}
	})
	p := b.up("pod", podOf(app))
	if code, _ := p.exited("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	eventually(t, "the handler's end", func() bool { return strings.Contains(p.stagerLog(), "post-stop failed") })
	p.stop()
}

// Handlers run as root, even if the image's passwd file maps "0" to another number.
func TestHandlersAreRoot(t *testing.T) {
	clause.Covers(t, "C-EVT-07")
	t.Parallel()
	b := newMachine(t)
	etc := b.folder("etc", 0o755)
	passwd, group := filepath.Join(etc, "passwd"), filepath.Join(etc, "group")
	if err := errors.Join(os.WriteFile(passwd, []byte("0:x:5:5::/:\n"), 0o644), os.WriteFile(group, []byte("0:x:6:\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	app := changed(shell("a", "id -u; id -g"), func(s *sectionDoc) {
		s.User, s.Group = "0", "0"
		s.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "id -u; id -g"}}}
	})
	app.Mounts = []any{mountDoc{"passwd", "/etc/passwd"}, mountDoc{"group", "/etc/group"}}
	doc := podOf(app)
	doc.Volumes = []volumeDoc{{Name: "passwd", Kind: "host", Source: passwd}, {Name: "group", Kind: "host", Source: group}}
	p := b.up("pod", doc)
	p.exited("a")
	if have := p.logs("a"); have != "0\n0\n5\n6\n" {
		t.Errorf("the handler and the app say %q", have)
	}
	p.stop()
}

func TestFailedPreStartFailsTheStart(t *testing.T) {
	clause.Covers(t, "C-EVT-05")
	t.Parallel()
	b := newMachine(t)
	dir := b.folder("shared", 0o777)
	app := changed(shell("a", "touch /shared/started"), func(s *sectionDoc) {
		s.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/sh", "-c", "exit 3"}}}
	})
	b.refuse("pod", podOf(app).hostVolume("v", dir, "/shared"), `"a"`, "pre-start", "3")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the main process ran: %v, %v", left, err)
	}
}
