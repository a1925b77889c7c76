package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/harness"
)

// A pod with a user namespace has its own user 0: the apps see the numbers that files have on the disk, and the
// supervisor and the host are out of their reach.
func TestAPodHasUsersOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"overlay", "copy"} {
		t.Run(driver, func(t *testing.T) { checkUsers(t, driver) })
	}
}

func checkUsers(t *testing.T, driver string) {
	t.Helper()
	m := suite.NewMachine(t, harness.StagerConfig(`{"gracePeriod": "1s", "userNamespace": {"hostID": 700000}, "graphStorage": "`+driver+`"}`))
	dir := m.Folder("volume", 0o755)
	if err := os.Chown(dir, 33, 33); err != nil {
		t.Fatal(err)
	}
	script := `cat /proc/self/uid_map | tr -s ' '; for f in / /etc/hosts /etc/resolv.conf /bin/busybox /dev/null /volume /empty; do stat -c "%n %u:%g" $f; done
touch /volume/mine /empty/mine; chown 33:44 /volume/mine
echo hello >/bin/new && chown 5:6 /bin/new && mv /bin/new /etc/moved && stat -c "%n %u:%g" /etc/moved
kill -9 1 2>&1; (echo 1000 >/proc/1/oom_score_adj) 2>&1; (mknod /node c 1 3) 2>&1; (mount -t tmpfs none /tmp) 2>&1
(echo served | timeout 10 nc -l -p 80 &) ; for i in 1 2 3 4 5 6 7 8 9; do nc 127.0.0.1 80 2>/dev/null && break; sleep 0.1; done
exec sleep 1000`
	want := " 0 700000 65536\n/ 0:0\n/etc/hosts 0:0\n/etc/resolv.conf 0:0\n/bin/busybox 0:0\n/dev/null 0:0\n/volume 33:33\n/empty 3:4\n/etc/moved 5:6\n" +
		"sh: can't kill pid 1: Operation not permitted\n/bin/sh: can't create /proc/1/oom_score_adj: Read-only file system\n" +
		"mknod: /node: Operation not permitted\nmount: permission denied (are you root?)\nserved\n"
	filled := suite.Shell("filled", `stat -c "%u:%g" /bin /bin/busybox; touch /bin/new && echo new`)
	app := suite.Shell("a", script)
	app.App.Isolators = []any{harness.Isolator("os/linux/capabilities-retain-set", map[string]any{"set": append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")})}
	doc := harness.PodOf(app, filled).HostVolume("volume", dir, "/volume")
	uid, gid := 3, 4
	doc.Volumes = append(doc.Volumes, harness.VolumeDoc{Name: "empty", Kind: "empty", Mode: "0755", UID: &uid, GID: &gid})
	doc.Apps[0].Mounts = append(doc.Apps[0].Mounts, harness.MountDoc{Volume: "empty", Path: "/empty"})
	doc.Volumes = append(doc.Volumes, harness.VolumeDoc{Name: "filled", Kind: "empty"})
	doc.Apps[1].Mounts = append(doc.Apps[1].Mounts, harness.MountDoc{Volume: "filled", Path: "/bin"})
	p := m.Up("users", doc)
	p.Exited("filled")
	if have := p.Logs("filled"); have != "0:0\n0:0\nnew\n" {
		t.Errorf("in a volume with the image's files, the app writes %q", have)
	}
	p.Sees("a", "served\n")
	if have := p.Logs("a"); have != want {
		t.Errorf("the app writes\n%swant\n%s", have, want)
	}
	for path, want := range map[string][2]uint32{"mine": {33, 44}} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, path), &st); err != nil || st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("on the host, %s belongs to %d:%d, %v, want %d", path, st.Uid, st.Gid, err, want)
		}
	}
	if out := p.Exec("a", "sh", "-c", "id -u; tr -s ' ' </proc/self/uid_map; touch /root-file; stat -c %u /root-file"); out.Stdout != "0\n 0 700000 65536\n0\n" {
		t.Errorf("a command writes %q", out.Stdout)
	}
	p.Stop()
}

// Where a file system cannot show other owners, the pod does not start, and the error names the volume's folder.
func TestAVolumeThatCannotBeMappedIsRefused(t *testing.T) {
	t.Parallel()
	m := suite.NewMachine(t, harness.StagerConfig(`{"userNamespace": {"hostID": 700000}}`))
	doc := harness.PodOf(suite.Shell("a", "true")).HostVolume("kernel", "/proc/fs", "/kernel")
	doc.Volumes[0].ReadOnly = true
	r := m.Launcher("run", m.Write("pod.json", doc))
	const want = "at /kernel: the file system cannot map its owners to the pod's user namespace"
	if r.Code == 0 || !strings.Contains(r.Stderr, want) || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("exit status %d and %q, want a line with %q", r.Code, r.Stderr, want)
	}
}
