package tests

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// The test plays journald for a launcher in a new mount namespace: the apps' output
// arrives at the test.
func TestOutputGoesToTheHostsJournal(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.StagerConfig(`{"log": {"driver": "journald"}}`))
	dir := b.Folder("journal", 0o755)
	journal, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	path := b.Write("pod.json", harness.PodOf(suite.Shell("a", "echo hello; exec sleep 1000")))
	cmd := b.Command("run", "--json", "--detach", "--name", "p", path)
	cmd.Args = append([]string{
		"sh", "-e", "-c",
		`mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; mount --bind "$0" /run/systemd/journal; exec "$@"`, dir,
	}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	r := harness.Finish(t, cmd)
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	p := b.Adopt(r.Stdout)
	if err := journal.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	entry := make([]byte, 1<<16)
	n, err := journal.Read(entry)
	text := string(entry[:n])
	for _, field := range []string{"SYSLOG_IDENTIFIER=a", "KURMA_APP=a", "KURMA_POD=p", "KURMA_POD_UUID=" + p.UUID, "MESSAGE=hello"} {
		if err != nil || !strings.Contains(text, field+"\n") {
			t.Errorf("the journal was sent %q without %q, %v", text, field, err)
		}
	}
	p.Stop()
}

// run as a service sends each line to the journal, with the fields by which journalctl finds an app's; without a
// journal that takes entries, stdout has the lines.
func TestAServiceSendsItsLinesToTheJournal(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("journal", 0o755)
	journal, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	path := b.Write("pod.json", harness.PodOf(
		suite.Shell("web", "echo out of web; echo error of web >&2"), suite.Shell("db", "echo out of db; printf 'no newline'")))
	inService := func(mounts string) harness.Result {
		cmd := b.Command("run", "--rm", "--name", "p", path)
		cmd.Args = append([]string{
			"sh", "-e", "-c", mounts + `; exec 2>&1; JOURNAL_STREAM=$(stat -L -c %d:%i /proc/$$/fd/1); export JOURNAL_STREAM; exec "$@"`, dir,
		}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return harness.Finish(t, cmd)
	}

	r := inService(`mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; mount --bind "$0" /run/systemd/journal`)
	if r.Code != 0 || strings.Contains(r.Stdout, "out of") {
		t.Errorf("with a journal: %+v", r)
	}
	missing := map[string]string{"out of web": "web 6", "error of web": "web 3", "out of db": "db 6", "no newline": "db 6"}
	for len(missing) > 0 {
		if err := journal.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
			t.Fatal(err)
		}
		entry := make([]byte, 1<<16)
		n, err := journal.Read(entry)
		if err != nil {
			t.Fatalf("no entry of %v: %v", missing, err)
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(entry[:n])) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			fields[name] = value
		}
		want, message := missing[fields["MESSAGE"]], fields["MESSAGE"]
		if got := fields["KURMA_APP"] + " " + fields["PRIORITY"]; got != want || fields["SYSLOG_IDENTIFIER"] != fields["KURMA_APP"] ||
			fields["KURMA_POD"] != "p" || len(fields["KURMA_POD_UUID"]) != 36 {
			t.Errorf("the entry %q is %v, want %q", message, fields, want)
		}
		delete(missing, message)
	}

	r = inService(`mount -t tmpfs tmpfs /run`)
	for _, line := range []string{"web | out of web\n", "web | error of web\n", "db  | out of db\n", "db  | no newline\n"} {
		if r.Code != 0 || !strings.Contains(r.Stdout, line) {
			t.Errorf("without a journal %q is missing: %+v", line, r)
		}
	}
}
