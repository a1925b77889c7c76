package tests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/surroundings"
)

// cp copies into an app and out of it, with its volumes, and as a tar archive.
func TestCpCopiesBothWays(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	volume := b.Folder("volume", 0o755)
	p := b.Up("copied", harness.PodOf(
		suite.Shell("a", "mkdir -p /data/sub && echo inside >/data/sub/file && chmod 4750 /data/sub/file && chown 12:34 /data/sub/file && ln -s file /data/sub/link; echo up; exec sleep 1000"),
		suite.Shell("b", "echo up; exec sleep 1000"),
		suite.Shell("ended", "exit 0"),
	).HostVolume("shared", volume, "/shared"))
	p.Sees("a", "up")
	p.Sees("b", "up")
	p.Exited("ended")
	out := b.Folder("out", 0o755)
	b.Must("cp", "copied:a:/data", out)
	var stat syscall.Stat_t
	if err := syscall.Stat(out+"/data/sub/file", &stat); err != nil || stat.Mode&0o7777 != 0o750 || stat.Uid != 12 || stat.Gid != 34 {
		t.Errorf("the copy: %v, mode %o, owner %d:%d", err, stat.Mode, stat.Uid, stat.Gid)
	}
	if link, err := os.Readlink(out + "/data/sub/link"); link != "file" {
		t.Errorf("link %q, %v", link, err)
	}
	from := b.Write("from-host", "of the host\n")
	b.Must("cp", from, "copied:b:/root/new")
	b.Must("cp", from, "copied:b:/shared/")
	if r := p.Exec("b", "cat", "/root/new", "/shared/from-host"); r.Stdout != "of the host\nof the host\n" {
		t.Errorf("in the app: %+v", r)
	}
	if text, err := os.ReadFile(filepath.Join(volume, "from-host")); string(text) != "of the host\n" {
		t.Errorf("in the volume: %q, %v", text, err)
	}
	archive := b.Must("cp", "copied:a:/data/sub", "-")
	cmd := b.Command("cp", "-", "copied:b:/tmp")
	cmd.Stdin = strings.NewReader(archive)
	if r := harness.Finish(t, cmd); r.Code != 0 {
		t.Errorf("cp of an archive: %+v", r)
	}
	if r := p.Exec("b", "cat", "/tmp/sub/link"); r.Stdout != "inside\n" {
		t.Errorf("of the archive: %+v", r)
	}
	tar := exec.Command("tar", "-t")
	tar.Stdin = strings.NewReader(archive)
	if list, err := tar.Output(); err != nil || !strings.Contains(string(list), "sub/link\n") {
		t.Errorf("tar reads %q, %v", list, err)
	}
	for _, test := range []struct {
		code int
		want string
		args []string
	}{
		{2, "one argument must be POD:PATH", []string{from, out}},
		{2, "both arguments are in pods", []string{"copied:a:/data", "copied:b:/"}},
		{2, "choose one: a, b, ended", []string{from, "copied:/root"}},
		{2, "is not POD[:APP]:PATH", []string{from, "copied:"}},
		{1, `app "ended" of pod "copied" is not running`, []string{from, "copied:ended:/"}},
		{1, "no such pod", []string{from, "other:/"}},
		{1, "no such file or directory", []string{"copied:a:/missing", out}},
		{1, "part of a kernel file system", []string{"copied:a:/proc/1/environ", out}},
		{1, "part of a kernel file system", []string{from, "copied:a:/proc"}},
	} {
		if r := b.Launcher(append([]string{"cp"}, test.args...)...); r.Code != test.code || !strings.Contains(r.Stderr, test.want) {
			t.Errorf("cp %q: %+v, want %q", test.args, r, test.want)
		}
	}
	b.Must("stop", "copied")
	if r := b.Launcher("cp", "copied:a:/data", out); r.Code != 1 || !strings.Contains(r.Stderr, "has ended, and the files of its apps are gone") {
		t.Errorf("cp of an ended pod: %+v", r)
	}
}

// An app that exchanges its folders for links while it is copied to, and has FIFOs and devices, leads cp
// to no file of the host and does not stop it.
func TestCpOfAHostileAppStaysInItsRoot(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	secret := b.Folder("secret", 0o755)
	if err := os.WriteFile(secret+"/file", []byte("host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := b.Up("hostile", harness.PodOf(suite.Shell("a", `mkdir /d /real && echo mine >/real/file && mkfifo /d/fifo && mknod /d/zero c 1 5
		mkdir -p /outside`+secret+` && echo mine >/outside`+secret+`/file; ln -s `+secret+` /d/host; ln -s ../../../../../../../..`+secret+` /d/up
		echo up; while :; do ln -sfn `+secret+` /turn; rm -f /turn; mkdir /turn 2>/dev/null; rm -rf /turn; done`)))
	p.Sees("a", "up")
	out := b.Folder("out", 0o755)
	from := b.Write("file", "copied")
	for i := range 40 {
		r := b.Launcher("cp", "hostile:/turn/file", filepath.Join(out, "file"))
		if text, err := os.ReadFile(out + "/file"); err == nil && bytes.Contains(text, []byte("host's")) {
			t.Fatalf("try %d read the host's file: %+v", i, r)
		}
		b.Launcher("cp", from, "hostile:/turn/")
		if text, err := os.ReadFile(secret + "/file"); string(text) != "host's" {
			t.Fatalf("try %d wrote the host's file: %q, %v", i, text, err)
		}
	}
	for _, path := range []string{"/d/host/file", "/d/up/file"} {
		if r := b.Launcher("cp", "hostile:"+path, out); r.Code != 1 || !strings.Contains(r.Stderr, "no such file") {
			t.Errorf("cp of %s: %+v", path, r)
		}
	}
	r := b.Launcher("cp", "hostile:/d", out)
	if r.Code != 0 || !strings.Contains(r.Stderr, `"d/fifo" is left out: a device, FIFO or socket`) || !strings.Contains(r.Stderr, `"d/zero" is left out`) {
		t.Errorf("cp of a folder with a FIFO and a device: %+v", r)
	}
	for _, name := range []string{"fifo", "zero"} {
		if _, err := os.Lstat(filepath.Join(out, "d", name)); !os.IsNotExist(err) {
			t.Errorf("%s was copied: %v", name, err)
		}
	}
}

// A second SIGINT ends cp even if a file system does not answer: here nobody answers the permission event of an open.
func TestASecondSignalEndsCp(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	b.Up("held", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	folder := b.Folder("folder", 0o755)
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "fanotify")
	defer events.Close()
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_ONDIR, unix.AT_FDCWD, folder); err != nil {
		t.Fatal(err)
	}
	cmd := b.Command("cp", folder, "held:/")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	event := unix.FanotifyEventMetadata{Fd: -1}
	if err := errors.Join(events.SetReadDeadline(time.Now().Add(harness.Patience)), binary.Read(events, binary.NativeEndian, &event)); err != nil {
		t.Error(err)
	}
	defer unix.Close(int(event.Fd))
	if !surroundings.Eventually(t, "cp ends", func() bool {
		_ = cmd.Process.Signal(unix.SIGINT)
		return len(ended) > 0
	}) {
		_ = cmd.Process.Kill()
	}
	<-ended
	if cmd.ProcessState.String() != "signal: interrupt" {
		t.Error(cmd.ProcessState)
	}
}
