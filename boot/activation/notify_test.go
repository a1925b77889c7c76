package activation

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// A message of a process that is not the app's does not count; its descriptors
// are closed all the same, which is what its sender waits for.
func TestMessagesOfOtherProcessesDoNotCount(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenNotify(filepath.Join(dir, "notify"), 0, "/apps/a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
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

// An app may end as soon as it has reported that it is ready.
func TestAMessageBeforeTheEndCounts(t *testing.T) {
	surroundings.Root(t)
	var out strings.Builder
	dir := t.TempDir()
	for n := range 200 {
		s, err := OpenNotify(dir, n, "", slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path + ".sender", Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		sender := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getppid())})
		message := []string{"READY=0", "READY=1"}[n%2]
		if _, _, err := conn.WriteMsgUnix([]byte(message), sender, &net.UnixAddr{Name: s.path, Net: "unixgram"}); err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := s.Wait(ended); (got == nil) != (message == "READY=1") {
			t.Errorf("after %s: %v", message, got)
		}
		if err := errors.Join(conn.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("logged: %s", &out)
	}
}

func TestOnlyAReadyMessageMakesAnAppReady(t *testing.T) {
	for message, ready := range map[string]bool{
		"READY=1": true, "STATUS=x\nREADY=1\n": true, "READY=0": false, "READY=1x": false, "MAINPID=1": false, "": false, "\n\n=": false,
	} {
		s := &NotifySocket{log: slog.New(slog.DiscardHandler), ready: make(chan struct{})}
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
func TestARepeatedStatusIsLoggedOnce(t *testing.T) {
	var out strings.Builder
	s := &NotifySocket{log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, status := range []string{"loading", "loading", strings.Repeat("é", maxStatus)} {
		s.logged = time.Time{} // as if a second had passed
		s.take("STATUS=" + status)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], "status=loading") || !strings.HasSuffix(lines[1], "é…") || len(lines[1]) > maxStatus+100 {
		t.Errorf("logged %q", lines)
	}
}

// The supervisor's own message, by which it waits for an app's last ones, is none of a stranger.
func TestTheWaitForTheLastMessagesIsNotLogged(t *testing.T) {
	var out strings.Builder
	s, err := OpenNotify(t.TempDir(), 0, "/apps/a", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out.Len() > 0 {
		t.Errorf("the log has %s", &out)
	}
}
