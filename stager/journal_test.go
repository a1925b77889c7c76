package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/clause"
)

// A real journald gets the lines under the app's name, and so does the log file.
func TestOutputGoesToTheJournal(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	var journald func(...string) []byte
	app := testApp{Name: "web", App: map[string]any{"exec": []string{"/bin/sh", "-c", "echo out; echo err >&2; echo end"}}}
	p := launch(t, []testApp{app}, logged,
		withConfig("log", map[string]any{"driver": "journald"}), withConfig("exitPolicy", "all"),
		func(p *testPod, _ map[string]any) {
			p.mkdir(p.root + "/run/systemd")
			journald = startJournald(p.t, p.root+"/run/systemd")
		})
	if code := p.exits(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.messages())
	}
	journald("journalctl", "--sync")
	out := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(journald("journalctl", "--directory=/run/log/journal", "-t", "web", "-o", "json"))); decoder.More(); {
		var entry struct{ MESSAGE, PRIORITY string }
		if err := decoder.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		out[entry.PRIORITY] = append(out[entry.PRIORITY], entry.MESSAGE)
	}
	if diff := cmp.Diff(map[string][]string{"6": {"out", "end"}, "3": {"err"}}, out); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(filepath.Join(p.root, names.LogDir, "web", "0000000001.log")); err != nil || strings.Count(string(text), "\n") != 3 {
		t.Errorf("%v: the log file has %q", err, text)
	}
}

func TestMissingJournalIsLoggedOnce(t *testing.T) {
	clause.Covers(t, "C-LOG-01")
	app := func(name string) testApp {
		return testApp{Name: name, App: map[string]any{"exec": []string{"/bin/echo", "x"}}}
	}
	p := launch(t, []testApp{app("a"), app("b")}, logged, withConfig("log", map[string]any{"driver": "journald"}))
	p.isReady()
	if n := strings.Count(p.messages(), "goes to files only"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, p.messages())
	}
}

// startJournald runs systemd's journald with its own /run, in which dir is /run/systemd. It returns
// a function that runs a command in journald's mount namespace.
func startJournald(t *testing.T, dir string) func(args ...string) []byte {
	t.Helper()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	cmd := exec.Command("sh", "-ec", `mount --make-rprivate /
		mount -t tmpfs tmpfs /run
		mkdir -p /run/log/journal /run/systemd
		mount --bind "$0" /run/systemd
		mkdir -p /run/systemd/journald.conf.d
		printf '[Journal]\nStorage=volatile\nAudit=\nReadKMsg=no\nForwardToWall=no\nForwardToSyslog=no\n' >/run/systemd/journald.conf.d/test.conf
		exec /lib/systemd/systemd-journald`, dir)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start journald (Debian's systemd): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for message := ""; !strings.Contains(message, "READY=1"); {
		message = received(t, notify)
	}
	return func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(cmd.Process.Pid), "-m"}, args...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
		return out
	}
}

// received is the next entry.
func received(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 1<<20)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}
