package server

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"kurma.io/stager/launcher/daemon"

	"golang.org/x/sys/unix"
)

// A call that fails may leave a process that does not end although it was killed, and that has the streams.
func TestACallThatFailsLeavesItsStreams(t *testing.T) {
	t.Parallel()
	why := errors.New("not ended")
	for name, tty := range map[string]bool{"pipes": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			_, err := carry(context.Background(), streams{out: &out, tty: tty}, func(c daemon.Caller) (int, error) {
				fd, err := unix.FcntlInt(c.Stdio[1].Fd(), unix.F_DUPFD_CLOEXEC, 0)
				t.Cleanup(func() { _ = unix.Close(fd) })
				return 0, errors.Join(why, err)
			})
			if !errors.Is(err, why) {
				t.Error(err)
			}
		})
	}
}
