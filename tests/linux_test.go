package tests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// Every app has the file systems and devices of Linux, and they work for every user.
func TestAppHasTheFileSystemsAndDevicesOfLinux(t *testing.T) {
	clause.Covers(t, "C-OS-01")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	root, user := suite.Shell("root", linuxScript), suite.Shell("user", linuxScript)
	user.App.User, user.App.Group = "1000", "1000"
	p := b.Up("p", harness.PodOf(root, user).HostVolume("probe", dir, "/probe"))
	for _, app := range []string{"root", "user"} {
		p.Exited(app)
		if diff := cmp.Diff(linuxFacts, p.Logs(app)); diff != "" {
			t.Errorf("app %s (-want +have):\n%s", app, diff)
		}
	}
	p.Stop()
}

// linuxScript prints what the specification lists for Linux. Device numbers are those of null(4),
// full(4), random(4), tty(4) and console(4), in hexadecimal.
const linuxScript = `exec 2>&1; cd /dev
stat -c '%n %F %t:%T' null zero full random urandom tty console
stat -L -c '%n %F %t:%T' ptmx
for m in /proc /sys /dev/pts /dev/shm; do awk -v m=$m '$2 == m {t = $3} END {print m, t}' /proc/self/mounts; done
echo lost >null; head -c 1 null | wc -c
head -c 100000 zero | tr -d '\0' | wc -c; head -c 5 zero | wc -c
echo more >full; echo lost >zero; head -c 2 full | od -A n -t x1
head -c 16 urandom | wc -c; head -c 16 random | wc -c
ls -d /proc/$$/fd /sys/class/net/lo /proc/self/fd/0 | wc -l
echo own >shm/$AC_APP_NAME && cat shm/$AC_APP_NAME
stat -c %a shm
/probe/probe open-terminal
`

const linuxFacts = `null character special file 1:3
zero character special file 1:5
full character special file 1:7
random character special file 1:8
urandom character special file 1:9
tty character special file 5:0
console character special file 5:1
ptmx character special file 5:2
/proc proc
/sys sysfs
/dev/pts devpts
/dev/shm tmpfs
0
0
5
sh: write error: No space left on device
 00 00
16
16
3
own
1777
a terminal of character device 136
`

// probeTerminal opens a terminal as openpty(3) does, and writes and reads through it.
func probeTerminal(out io.Writer) error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		return err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer slave.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(slave.Fd()), &stat); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(slave, "a terminal of character device %d\n", unix.Major(stat.Rdev)); err != nil {
		return err
	}
	line, err := bufio.NewReader(master).ReadString('\n')
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, strings.ReplaceAll(line, "\r\n", "\n"))
	return err
}

// The terminal of a command in an app is the command's controlling terminal.
func TestCommandHasATerminalOfTheApp(t *testing.T) {
	clause.Covers(t, "C-OS-01")
	t.Parallel()
	app := suite.Shell("a", "exec sleep 1000")
	app.App.User, app.App.Group = "1000", "1000"
	p := suite.NewMachine(t).Up("pod", harness.PodOf(app))
	out, code := run(p, "a", settings{Exec: []string{"sh", "-c", "tty; echo >/dev/tty"}, User: "1000", Group: "1000", TTY: true})
	if out != "/dev/pts/0\r\n\r\n" || code != 0 || p.Logs("a") != "" {
		t.Errorf("exit status %d, %q; the app says %q", code, out, p.Logs("a"))
	}
}

// etcScript prints the files of /etc, with their modes.
const etcScript = `cd /etc; hostname; for f in hosts hostname resolv.conf; do [ -e $f ] || continue; stat -c '%n %F %a %u %g' $f; cat $f; done; readlink mtab; grep -c ' / ' mtab`

// An app finds the pod's name, localhost, the host's resolvers and its mounts in /etc. The stager does
// not change files of the image or a volume there, except resolv.conf.
func TestFilesInEtcAreFilled(t *testing.T) {
	clause.Covers(t, "C-OS-02")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	bare, given, mounted := suite.Shell("bare", etcScript), suite.Shell("given", etcScript), suite.Shell("mounted", etcScript)
	given.Image = etcImage(b)
	file := b.Write("hosts", "127.0.0.9 of-the-volume\n")
	mounted.Mounts = []any{harness.MountDoc{Volume: "hosts", Path: "/etc/hosts"}, harness.MountDoc{Volume: "hosts", Path: "/etc/resolv.conf"}}
	doc := harness.PodOf(bare, given, mounted)
	doc.Volumes = []harness.VolumeDoc{{Name: "hosts", Kind: "host", Source: file}}
	p := b.Up("my-pod", doc)
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	const hostname, mtab = "hostname regular file 644 0 0\nmy-pod\n", "/proc/mounts\n1\n"
	defaults := "hosts regular file 644 0 0\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\tmy-pod\n"
	resolvers, ofImage := "resolv.conf regular file 644 0 0\n"+string(resolv), ""
	if resolv == nil {
		resolvers, ofImage = "", "resolv.conf regular file 640 0 7\nimage's resolv.conf\n"
	}
	volume := " regular file 600 0 0\n127.0.0.9 of-the-volume\n"
	for app, want := range map[string]string{
		"bare":    "my-pod\n" + defaults + hostname + resolvers + mtab,
		"given":   "my-pod\nhosts regular file 640 0 7\nimage's hosts\nhostname regular file 640 0 7\nimage's hostname\n" + resolvers + ofImage + "/of/the/image\n",
		"mounted": "my-pod\nhosts" + volume + hostname + "resolv.conf" + volume + mtab,
	} {
		p.Exited(app)
		have, _, _ := strings.Cut(p.Logs(app), "grep: ") // what mtab of an image leads to
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("app %s (-want +have):\n%s", app, diff)
		}
	}
	p.Stop()
	after, _ := os.ReadFile("/etc/resolv.conf") // or there is none, as before
	if content(b, file) != "127.0.0.9 of-the-volume\n" || !bytes.Equal(after, resolv) {
		t.Error("files of the host have changed")
	}
}

// etcImage makes an image of busybox that has these files itself.
func etcImage(b *harness.Machine) harness.ImageRef {
	b.T.Helper()
	path := image(b, "etc", hostileManifest("etc"), func(root string) error {
		dir := filepath.Join(root, "etc")
		errs := []error{os.Mkdir(dir, 0o755), os.Symlink("/of/the/image", filepath.Join(dir, "mtab"))}
		for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
			file := filepath.Join(dir, name)
			errs = append(errs, os.WriteFile(file, []byte("image's "+name+"\n"), 0o600), os.Chown(file, 0, 7), os.Chmod(file, 0o640))
		}
		return errors.Join(errs...)
	})
	id := strings.TrimSpace(b.Must("image", "import", filepath.Join(suite.Images, "busybox.aci"), path))
	b.LayersAreNow()
	return harness.ImageRef{ID: id[strings.LastIndexByte(id, '\n')+1:]}
}
