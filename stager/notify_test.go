package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"kurma.io/stager/manifest"
)

func TestNotifies(t *testing.T) {
	annotated := func(value string) types.Annotations {
		return types.Annotations{{Name: notifyAnnotation, Value: value}}
	}
	tests := []struct {
		name       string
		image, pod types.Annotations
		want, warn bool
	}{
		{"absent", nil, nil, false, false},
		{"image", annotated("true"), nil, true, false},
		{"image false", annotated("false"), nil, false, false},
		{"pod", nil, annotated("true"), true, false},
		{"pod before image", annotated("true"), annotated("false"), false, false},
		{"neither true nor false", annotated("yes"), nil, false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			app := manifest.App{Runtime: schema.RuntimeApp{Annotations: test.pod}}
			app.Image = &manifest.Image{ImageManifest: &schema.ImageManifest{Annotations: test.image}}
			got, warning := notifies(app)
			if got != test.want || (warning != "") != test.warn {
				t.Errorf("got %v and warning %q", got, warning)
			}
		})
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

func notifier(name string) testApp {
	return testApp{
		Name: name, App: map[string]any{"exec": []string{"/probe", "probe", "notify"}, "user": "1000", "group": "1000"},
		Annotations: []map[string]string{{"name": notifyAnnotation, "value": "true"}},
	}
}

// hungUp tells whether the other end of the ready pipe is closed.
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

func TestClause_C_ANN_02_ReadyWhenTheAppSaysSo(t *testing.T) {
	p := launch(t, []testApp{notifier("a"), {Name: "b", App: map[string]any{
		"exec": []string{"/bin/sh", "-c", "env; ls /dev; echo end; exec sleep 1000"},
	}}})
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

func TestClause_C_ANN_02_StopWhileWaiting(t *testing.T) {
	p := launch(t, []testApp{notifier("a")})
	if got := p.line("a"); got != "waiting" {
		t.Fatalf("app says %q", got)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

func TestClause_C_ANN_02_EndsBeforeReady(t *testing.T) {
	app := notifier("a")
	app.App["exec"] = []string{"/bin/sh", "-c", "exit 3"}
	p := launch(t, []testApp{app})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `start app "a": ended before it was ready`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

// A message of a process that is not the app's does not count; its descriptors
// are closed all the same, which is what its sender waits for.
func TestNotifyFromElsewhere(t *testing.T) {
	dir := t.TempDir()
	s, err := openNotify(filepath.Join(dir, "notify"), 0, "/apps/a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "sender"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _, err = conn.WriteMsgUnix([]byte("READY=1\nBARRIER=1"), unix.UnixRights(int(w.Fd())), &net.UnixAddr{Name: s.path, Net: "unixgram"})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("something came through the barrier")
	}
	select {
	case <-s.ready:
		t.Error("ready by a message from elsewhere")
	default:
	}
}

func TestNotifyMessages(t *testing.T) {
	for message, ready := range map[string]bool{
		"READY=1": true, "STATUS=x\nREADY=1\n": true, "READY=0": false, "READY=1x": false, "MAINPID=1": false, "": false, "\n\n=": false,
	} {
		s := &notifySocket{log: slog.New(slog.DiscardHandler), ready: make(chan struct{})}
		s.take(message)
		s.take(message)
		got := false
		select {
		case <-s.ready:
			got = true
		default:
		}
		if got != ready {
			t.Errorf("%q: ready %v", message, got)
		}
	}
}

// A status that does not change is logged once, and a long one in part.
func TestNotifyStatus(t *testing.T) {
	var out strings.Builder
	s := &notifySocket{log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, status := range []string{"loading", "loading", strings.Repeat("é", maxStatus)} {
		s.logged = time.Time{} // as if a second had passed
		s.take("STATUS=" + status)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "status=loading") || !strings.HasSuffix(lines[1], "é…") || len(lines[1]) > maxStatus+100 {
		t.Errorf("logged %q", lines)
	}
}
