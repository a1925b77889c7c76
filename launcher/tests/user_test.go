package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// exec --user has the groups and the home folder of the app's own files as they are now, unless options name others.
func TestACommandOfAnotherUserHasItsOwnGroupsAndHome(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	app := suite.Shell("a", `echo web:x:7:8::/srv/web:/bin/sh >>/etc/passwd
echo other:x:6:root,web >>/etc/group
echo up; exec sleep 1000`)
	app.App.SupplementaryGID = []int{9}
	p := b.Up("p", harness.PodOf(app))
	p.Sees("a", "up")
	for user, want := range map[string]string{
		"web": "7\n8 6\n/srv/web\n", "7": "7\n8 6\n/srv/web\n", "web:3": "7\n3\n/srv/web\n", "0": "0\n0 6\n/\n", "4": "4\n0\n/\n", "/etc/passwd": "0\n0 9\n/\n",
	} {
		if out := p.Must("exec", "--user", user, "p", "--", "sh", "-c", `id -u; id -G; echo "$HOME"`); out != want {
			t.Errorf("exec --user %s: %q, want %q", user, out, want)
		}
	}
	if out := p.Must("exec", "--env", "HOME=/own", "--user", "web", "p", "--", "sh", "-c", `id -G; echo "$HOME"`); out != "8 6\n/own\n" {
		t.Errorf("exec --user web --env HOME=/own: %q", out)
	}
	if r := p.Launcher("exec", "--user", "nobody-knows", "p", "--", "true"); r.Code != 125 || !strings.Contains(r.Stderr, `"nobody-knows"`) {
		t.Errorf("exec of a user that does not exist: %+v", r)
	}
}

// What the stager says of a command that cannot be executed has the name of the launcher's command.
func TestErrorsOfACommandNameExec(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	for command, code := range map[string]int{"nosuch": 127, "/etc/passwd": 126} {
		r := b.Launcher("exec", "p", "--", command)
		if want := `launcher: exec: start command in app "a": exec ` + command; r.Code != code || !strings.HasPrefix(r.Stderr, want) {
			t.Errorf("exec %s: %+v, want exit status %d and %q", command, r, code, want)
		}
	}
}

// What an app puts in place of its files of users neither makes exec wait, nor is read if it is not a file.
func TestFilesOfUsersThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "rm /etc/passwd; mkfifo /etc/passwd; echo up; exec sleep 1000")))
	p.Sees("a", "up")
	if r := p.Launcher("exec", "--user", "7", "p", "--", "true"); r.Code != 125 || !strings.Contains(r.Stderr, "etc/passwd") {
		t.Errorf("exec with a FIFO in place of /etc/passwd: %+v", r)
	}
	if r := p.Launcher("exec", "--user", "7:7", "p", "--", "id", "-G"); r.Stdout != "7\n" {
		t.Errorf("exec with a group: %+v", r)
	}
}

// run --hostname names the pod's host, for an image's pod and in place of what a pod manifest has.
func TestAPodHasTheHostnameThatIsAskedFor(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const script = "hostname; cat /etc/hostname; grep -w db.example /etc/hosts"
	const want = "db.example\ndb.example\n127.0.0.1\tdb.example\n"
	doc := harness.PodOf(suite.Shell("a", script))
	doc.Annotations = []harness.NameValue{{Name: "kurma.io/stager/hostname", Value: "old"}}
	for name, args := range map[string][]string{
		"image":    {"--exec", "/bin/sh", suite.IDs["busybox"], "--", "-c", script},
		"manifest": {b.Write("p.json", doc)},
	} {
		if out := b.Must(append([]string{"run", "--name", name, "--net", "none", "--hostname", "db.example"}, args...)...); out != want {
			t.Errorf("hostname of a pod of %s: %q, want %q", name, out, want)
		}
	}
	if r := b.Launcher("run", "--name", "own", "--net", "none", filepath.Join(b.Dir, "p.json")); !strings.HasPrefix(r.Stdout, "old\nold\n") {
		t.Errorf("hostname of a pod manifest: %+v", r)
	}
}
