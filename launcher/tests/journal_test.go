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
