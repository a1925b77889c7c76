package activation

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// FuzzNotify looks for messages of an app that make the supervisor panic, count as READY=1 without being it,
// or put a long status into its log. The kernel makes the control messages: the sender's PID and its descriptors.
func FuzzNotify(f *testing.F) {
	for i, message := range []string{"READY=1", "STATUS=x\nREADY=1\n", "READY=0", "MAINPID=1\nSTATUS=" + strings.Repeat("é", 200), "\n\n=", "BARRIER=1", ""} {
		f.Add(message, int32(i), uint8(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, message string, sender int32, count uint8, rightsFirst bool) {
		sent := make([]int, count)
		for i := range sent {
			sent[i] = i
		}
		control := unix.UnixCredentials(&unix.Ucred{Pid: sender})
		switch rights := unix.UnixRights(sent...); {
		case count > 0 && rightsFirst:
			control = append(rights, control...)
		case count > 0:
			control = append(control, rights...)
		}
		if pid, fds := readControl(control); pid != int(sender) || !slices.Equal(fds, sent) {
			t.Errorf("PID %d and descriptors %v, sent were %d and %v", pid, fds, sender, sent)
		}
		s := &NotifySocket{log: slog.New(slog.DiscardHandler), ready: make(chan struct{})}
		s.take(message)
		s.take(message)
		ready := false
		select {
		case <-s.ready:
			ready = true
		default:
		}
		if want := slices.Contains(strings.Split(message, "\n"), "READY=1"); ready != want {
			t.Errorf("ready is %t after %q", ready, message)
		}
		if len(s.status) > maxStatus+len("…") || utf8.ValidString(message) && !utf8.ValidString(s.status) {
			t.Errorf("status %q", s.status)
		}
	})
}
