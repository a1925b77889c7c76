package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
)

func notifier(name string) testApp {
	return testApp{
		Name: name, App: map[string]any{"exec": []string{"/probe", "probe", "notify"}, "user": "1000", "group": "1000"},
		Annotations: []map[string]string{{"name": "appc.io/executor/supports-systemd-notify", "value": "true"}},
	}
}

// hungUp reports whether the other end of the ready pipe is closed.
func (p *testPod) hungUp() bool {
	p.t.Helper()
	raw, err := p.ready.SyscallConn()
	p.must(err)
	var fds [1]unix.PollFd
	p.must(raw.Control(func(fd uintptr) {
		fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		_, err = unix.Poll(fds[:], 0)
	}))
	p.must(err)
	return fds[0].Revents != 0
}

func TestPodIsReadyWhenTheAppSaysSo(t *testing.T) {
	clause.Covers(t, "C-ANN-02")
	t.Run("host's users", func(t *testing.T) { checkReady(t) })
	// The socket is on a tmpfs, whose owners the kernel maps since Linux 6.3.
	t.Run("own users", func(t *testing.T) {
		checkReady(t, withConfig("userNamespace", map[string]any{"hostID": 700000}))
	})
}

func checkReady(t *testing.T, options ...podOption) {
	t.Helper()
	p := launch(t, []testApp{notifier("a"), {Name: "b", App: map[string]any{
		"exec": []string{"/bin/sh", "-c", "env; ls /dev; echo end; exec sleep 1000"},
	}}}, options...)
	if got := p.line("a"); got != "waiting" {
		t.Fatalf("app says %q", got)
	}
	for line := p.line("b"); line != "end"; line = p.line("b") {
		if strings.Contains(line, "NOTIFY") || strings.Contains(line, "notify") {
			t.Errorf("an app without the annotation has %q", line)
		}
	}
	if p.hungUp() {
		t.Fatal("ready before the app was")
	}
	p.must(unix.Kill(p.pidOf("a"), unix.SIGUSR1))
	p.isReady()
	if got := p.line("a"); got != "sent" {
		t.Errorf("app says %q", got)
	}
	if text := p.messages(); !strings.Contains(text, "status=loading") {
		t.Errorf("the first status is not in the log:\n%s", text)
	}
}

func TestStopEndsTheWaitForReadiness(t *testing.T) {
	clause.Covers(t, "C-ANN-02")
	p := launch(t, []testApp{notifier("a")})
	if got := p.line("a"); got != "waiting" {
		t.Fatalf("app says %q", got)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

func TestAppThatEndsBeforeItIsReadyFailsTheStart(t *testing.T) {
	clause.Covers(t, "C-ANN-02")
	app := notifier("a")
	app.App["exec"] = []string{"/bin/sh", "-c", "exit 3"}
	p := launch(t, []testApp{app})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `start app "a": ended before it was ready`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

// notifyOnSignal is an app that is ready when it gets SIGUSR1, by go-systemd.
func notifyOnSignal() int {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGUSR1)
	if sent, err := daemon.SdNotify(false, "STATUS=loading\nMAINPID=1"); !sent || err != nil {
		fmt.Fprintln(os.Stdout, "not sent:", err)
		return 1
	}
	fmt.Fprintln(os.Stdout, "waiting")
	<-c
	if sent, err := daemon.SdNotify(false, daemon.SdNotifyReady); !sent || err != nil {
		fmt.Fprintln(os.Stdout, "not sent:", err)
	}
	for i := range 1000 { // beyond what a socket holds
		if _, err := daemon.SdNotify(false, fmt.Sprint("STATUS=step ", i)); err != nil {
			fmt.Fprintln(os.Stdout, "not sent:", err)
		}
	}
	fmt.Fprintln(os.Stdout, "sent")
	select {}
}
