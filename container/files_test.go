package container

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/activation"

	"kurma.io/stager/tests/clause"
)

// listenProbe is this test program inside a container: it lists what it was given by sd_listen_fds(3), as go-systemd
// understands it, and what else is open.
func listenProbe(say func(...any)) {
	for i, f := range activation.Files(false) {
		l, err := net.FileListener(f)
		if err != nil {
			say("descriptor", 3+i, f.Name(), err)
			continue
		}
		say("descriptor", 3+i, f.Name(), l.Addr())
	}
}

func listener(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().String()
}

// The main process has its files from 3 on, again in the next run, and
// commands in the container have none.
func TestAppGetsSocketsAndItsOwnPID(t *testing.T) {
	clause.Covers(t, "C-PRT-01")
	r, root := newRuntime(t), probeRoot(t)
	first, firstAddress := listener(t)
	second, secondAddress := listener(t)
	s := testSpec(root, "/probe", "listen-probe")
	s.Process.Env = append(s.Process.Env, "LISTEN_FDS=2", "LISTEN_FDNAMES=web:web")
	s.Files = []*os.File{first, second}
	for range 2 {
		text, status := output(t, r, s)
		want := "descriptor 3 web " + firstAddress + "\ndescriptor 4 web " + secondAddress + "\n"
		if text != want || status.ExitStatus() != 0 {
			t.Errorf("exit status %d, want\n%sgot\n%s", status.ExitStatus(), want, text)
		}
	}
}

func TestAppWithoutSocketsHasNoListenVariables(t *testing.T) {
	clause.Covers(t, "C-PRT-06")
	r, root := newRuntime(t), probeRoot(t)
	text, _ := output(t, r, testSpec(root, "sh", "-c", "ls /proc/self/fd; echo; env"))
	if strings.Contains(text, "LISTEN") || !strings.HasPrefix(text, "0\n1\n2\n3\n\n") {
		t.Errorf("the app has\n%s", text)
	}

	f, _ := listener(t)
	s := testSpec(root, "sleep", "1000")
	s.Files = []*os.File{f}
	c, _ := startSleeper(t, r, s)
	text, _ = execOutput(t, c, rootCommand("sh", "-c", "ls /proc/self/fd; echo; env"))
	if strings.Contains(text, "LISTEN") || !strings.HasPrefix(text, "0\n1\n2\n3\n\n") {
		t.Errorf("a command beside an app with sockets has\n%s", text)
	}
}
