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
	"kurma.io/stager/tests/harness"
)

// says runs a pod of one app that ends, and compares what it wrote.
func says(t *testing.T, app harness.AppDoc, want string) {
	t.Helper()
	p := suite.NewMachine(t).Up("pod", harness.PodOf(app))
	if code, reason := p.Exited(app.Name); code != 0 {
		t.Errorf("exit code %d %s", code, reason)
	}
	if diff := cmp.Diff(want, p.Logs(app.Name)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	p.Stop()
}

// changed is an app after a change of its section.
func changed(app harness.AppDoc, change func(*harness.SectionDoc)) harness.AppDoc {
	change(app.App)
	return app
}

func TestEachAppHasARootOfItsOwn(t *testing.T) {
	clause.Covers(t, "C-FS-01", "C-FS-02", "C-FS-07")
	t.Parallel()
	b := suite.NewMachine(t)
	script := "touch /$AC_APP_NAME; ls / | grep -E '^(one|two|three)$'; exec sleep 1000"
	apps := []harness.AppDoc{suite.Shell("one", script), suite.Shell("two", script), suite.Shell("three", script)}
	apps[2].ReadOnly = true
	for range 2 {
		p := b.Up("pod", harness.PodOf(apps...))
		p.Sees("one", "one\n")
		p.Sees("two", "two\n")
		p.Sees("three", "Read-only file system\n")
		for _, app := range []string{"one", "two"} {
			if text := p.Logs(app); text != app+"\n" {
				t.Errorf("app %s has %q", app, text)
			}
		}
		p.Stop()
	}
}

func TestVolumeTargetsAreMade(t *testing.T) {
	clause.Covers(t, "C-VOL-02", "C-VOL-03", "C-VOL-04", "C-VOL-08")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	dir := b.Folder("volume", 0o755)
	if err := os.WriteFile(filepath.Join(dir, "content"), []byte("volume's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	app := suite.Shell("a", "stat -c '%a %u %g' /x /x/y; ls /etc /file /x/y/z; cat /single; exec sleep 1000")
	app.Image = people(b)
	app.Mounts = []any{harness.MountDoc{Volume: "v", Path: "/x/y/z"}, harness.MountDoc{Volume: "v", Path: "/etc"}, harness.MountDoc{Volume: "v", Path: "/file"}, harness.MountDoc{Volume: "f", Path: "/single"}}
	doc := harness.PodOf(app)
	doc.Volumes = []harness.VolumeDoc{{Name: "v", Kind: "host", Source: dir}, {Name: "f", Kind: "host", Source: filepath.Join(dir, "content")}}
	p := b.Up("pod", doc)
	p.Sees("a", "755 0 0\n755 0 0\n/etc:\ncontent\n\n/file:\ncontent\n\n/x/y/z:\ncontent\nvolume's\n")
	for _, target := range []string{"/etc", "/file"} {
		if !strings.Contains(p.StagerLog(), target) {
			t.Errorf("no warning of %s:\n%s", target, p.StagerLog())
		}
	}
	p.Stop()
}

func TestVolumeSourceMustNotBeASymbolicLink(t *testing.T) {
	clause.Covers(t, "C-VOL-09")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("volume", 0o755)
	link := filepath.Join(b.Dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{link, filepath.Join(link, "sub")} {
		b.Refuse("pod", harness.PodOf(suite.Shell("a", "true")).HostVolume("v", source, "/v"), `"v"`, source, "symbolic link")
	}
}

func TestAppsOfAPodShareAMachine(t *testing.T) {
	clause.Covers(t, "C-NET-01", "C-NET-03")
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("pod", harness.PodOf(
		suite.Shell("a", "trap 'echo signalled; exit 0' USR1; ip addr show lo; echo $$ >/dev/shm/a; nc -l -p 7777 -e echo hello & while :; do sleep 1000 & wait; done"),
		suite.Shell("b", "while ! [ -s /dev/shm/a ]; do usleep 1000; done; while ! nc 127.0.0.1 7777; do usleep 10000; done; kill -USR1 $(cat /dev/shm/a)"),
	))
	p.Sees("b", "hello\n")
	p.Sees("a", "signalled\n")
	if text := p.Logs("a"); !strings.Contains(text, "inet 127.0.0.1/8") || !strings.Contains(text, "LOOPBACK,UP") {
		t.Errorf("the loopback interface is\n%s", text)
	}
	p.Stop()
}

func TestAppGetsItsEnvironmentArgumentsAndDirectory(t *testing.T) {
	clause.Covers(t, "C-ENV-05", "C-EXE-01", "C-EXE-02", "C-CWD-01")
	t.Parallel()
	script := `env | cut -d = -f 1 | grep -v -E '^(SHLVL|PWD|OLDPWD)$' | sort; pwd; printf '<%s>' "$@"`
	app := changed(suite.Shell("a", ""), func(s *harness.SectionDoc) {
		s.Exec = []string{"sh", "-c", script, "$PATH", "*", "", "a ", "`id`"}
		s.Environment = []harness.NameValue{{Name: "OWN", Value: "1"}}
	})
	says(t, app, "AC_APP_NAME\nAC_METADATA_URL\nHOME\nOWN\nPATH\ncontainer\n/\n<*><><a ><`id`>")
	says(t, changed(suite.Shell("a", "pwd"), func(s *harness.SectionDoc) { s.WorkingDirectory = "/etc" }), "/etc\n")
}

func TestRelativeProgramIsFoundFromItsDirectory(t *testing.T) {
	clause.Covers(t, "C-EXE-03")
	t.Parallel()
	says(t, changed(suite.Shell("a", ""), func(s *harness.SectionDoc) {
		s.Exec, s.WorkingDirectory = []string{"bin/busybox", "echo", "found"}, "/"
	}), "found\n")
}

// people is an image with odd users.
func people(b *harness.Machine) harness.ImageRef {
	b.T.Helper()
	busybox := suite.IDs["busybox"]
	path := image(b, "people", fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/people","dependencies":[{"imageName":"kurma.io/stager/tests/busybox","imageID":%q}]}`, busybox), func(root string) error {
		file := filepath.Join(root, "file")
		return errors.Join(
			os.Mkdir(filepath.Join(root, "etc"), 0o755),
			os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("# users\nshort:x\n+nis\n1000:x:2222:3333::/:\ntwice:x:7:7::/:\ntwice:x:8:8::/:\nroot:x:0:0::/:\n"), 0o644),
			os.WriteFile(filepath.Join(root, "etc/group"), []byte("bad\nroot:x:0:\n1000:x:4444:twice\nstaff:x:55:twice,1000\n"), 0o644),
			os.WriteFile(file, nil, 0o644), os.Chown(file, 1234, 5678), os.Symlink("/file", filepath.Join(root, "link")))
	})
	id := strings.TrimSpace(b.Must("image", "import", filepath.Join(suite.Images, "busybox.aci"), path))
	b.LayersAreNow()
	return harness.ImageRef{ID: id[strings.LastIndexByte(id, '\n')+1:]}
}

func TestUsersAndGroupsAreResolved(t *testing.T) {
	clause.Covers(t, "C-USR-01", "C-USR-02", "C-USR-05", "C-USR-06", "C-USR-08", "C-USR-09", "C-CAP-04")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	image := people(b)
	var apps []harness.AppDoc
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
		app := suite.Shell(fmt.Sprintf("a%d", i), "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapInh|CapAmb):' /proc/self/status")
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
	p := b.Up("pod", harness.PodOf(apps...))
	for name, want := range wants {
		p.Exited(name)
		if diff := cmp.Diff(strings.ReplaceAll(want, " \n", "\n"), strings.ReplaceAll(p.Logs(name), " \n", "\n")); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
}

func TestUnknownUsersAreRefused(t *testing.T) {
	clause.Covers(t, "C-USR-03", "C-USR-07")
	t.Parallel()
	b := suite.NewMachine(t)
	for i, user := range []string{"nosuchuser", "-1", "4294967295", "0x10", "+5", " 5", "/not/there"} {
		app := suite.Shell("a", "true")
		app.App.User = user
		b.Refuse(fmt.Sprintf("pod%d", i), harness.PodOf(app), `"a"`, strings.TrimSpace(user))
	}
}

// A handler has the app's variables, root and volumes; the post-stop one runs however the app ends.
func TestHandlersHaveTheEnvironmentOfTheApp(t *testing.T) {
	clause.Covers(t, "C-EVT-02", "C-EVT-04", "C-ENV-01", "C-ENV-03", "C-ENV-04")
	t.Parallel()
	for name, end := range map[string]string{"exits 0": "exit 0", "exits 7": "exit 7", "is killed": "kill -KILL $$", "is stopped": "exec sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			dir := b.Folder("shared", 0o777)
			app := changed(suite.Shell("a", "cat /before; "+end), func(s *harness.SectionDoc) {
				s.User, s.Group, s.Environment = "1000", "1000", []harness.NameValue{{Name: "OWN", Value: "variable"}}
				s.EventHandlers = []harness.HandlerDoc{
					{Name: "pre-start", Exec: []string{"/bin/sh", "-c", `echo "$OWN $AC_APP_NAME $container ${AC_METADATA_URL%%:*} $PATH" >/before`}},
					{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "cp /before /shared/after"}},
				}
			})
			p := b.Up("pod", harness.PodOf(app).HostVolume("v", dir, "/shared"))
			const want = "variable a " + names.Executor + " http /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			p.Sees("a", want)
			p.Stop()
			if have, err := os.ReadFile(filepath.Join(dir, "after")); err != nil || string(have) != want {
				t.Errorf("after the end there is %q, %v", have, err)
			}
		})
	}
}

func TestMainWaitsForPreStart(t *testing.T) {
	clause.Covers(t, "C-EVT-01")
	t.Parallel()
	b := suite.NewMachine(t)
	app := changed(suite.Shell("a", "ls /prepared"), func(s *harness.SectionDoc) {
		s.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "sleep 1; touch /prepared"}}}
	})
	p := b.Up("pod", harness.PodOf(app))
	if code, _ := p.Exited("a"); code != 0 || p.Logs("a") != "/prepared\n" {
		t.Errorf("exit status %d, %q", code, p.Logs("a"))
	}
	p.Stop()
}

// A post-stop handler that does not end is ended, and its app is over.
func TestPostStopHasTenSeconds(t *testing.T) {
	clause.Covers(t, "C-EVT-06")
	t.Parallel()
	b := suite.NewMachine(t)
	app := changed(suite.Shell("a", "true"), func(s *harness.SectionDoc) {
		s.EventHandlers = []harness.HandlerDoc{{Name: "post-stop", Exec: []string{"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1000; done"}}}
	})
	p := b.Up("pod", harness.PodOf(app))
	if code, _ := p.Exited("a"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	harness.Eventually(t, "the handler's end", func() bool { return strings.Contains(p.StagerLog(), "post-stop failed") })
	p.Stop()
}

// Handlers run as root, even if the image's passwd file maps "0" to another number.
func TestHandlersAreRoot(t *testing.T) {
	clause.Covers(t, "C-EVT-07")
	t.Parallel()
	b := suite.NewMachine(t)
	etc := b.Folder("etc", 0o755)
	passwd, group := filepath.Join(etc, "passwd"), filepath.Join(etc, "group")
	if err := errors.Join(os.WriteFile(passwd, []byte("0:x:5:5::/:\n"), 0o644), os.WriteFile(group, []byte("0:x:6:\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	app := changed(suite.Shell("a", "id -u; id -g"), func(s *harness.SectionDoc) {
		s.User, s.Group = "0", "0"
		s.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "id -u; id -g"}}}
	})
	app.Mounts = []any{harness.MountDoc{Volume: "passwd", Path: "/etc/passwd"}, harness.MountDoc{Volume: "group", Path: "/etc/group"}}
	doc := harness.PodOf(app)
	doc.Volumes = []harness.VolumeDoc{{Name: "passwd", Kind: "host", Source: passwd}, {Name: "group", Kind: "host", Source: group}}
	p := b.Up("pod", doc)
	p.Exited("a")
	if have := p.Logs("a"); have != "0\n0\n5\n6\n" {
		t.Errorf("the handler and the app say %q", have)
	}
	p.Stop()
}

func TestFailedPreStartFailsTheStart(t *testing.T) {
	clause.Covers(t, "C-EVT-05")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("shared", 0o777)
	app := changed(suite.Shell("a", "touch /shared/started"), func(s *harness.SectionDoc) {
		s.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"/bin/sh", "-c", "exit 3"}}}
	})
	b.Refuse("pod", harness.PodOf(app).HostVolume("v", dir, "/shared"), `"a"`, "pre-start", "3")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the main process ran: %v, %v", left, err)
	}
}
