// Package activation implements two protocols of an app's start: with sd_notify(3) the app reports readiness, with
// sd_listen_fds(3) it inherits its sockets.
package activation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// NotifySocket is the socket on which one app reports that it is ready. The supervisor reads it
// until the pod ends, because a full socket would block the app.
type NotifySocket struct {
	path   string
	cgroup string // the app's
	log    *slog.Logger
	conn   *net.UnixConn
	ready  chan struct{} // closed when the app is ready
	once   sync.Once

	// Only serve uses these. An app may send any number of messages; serve logs at most one a
	// second.
	logged time.Time // when serve logged last
	status string    // the last one logged
}

// OpenNotify makes the socket of the pod's nth app in dir, and makes dir if it is missing. The
// socket's name is n, because an app's name may be longer than a socket's path. cgroup is the
// app's; messages from processes outside it are logged and ignored. The caller closes the socket.
func OpenNotify(dir string, n int, cgroup string, log *slog.Logger) (*NotifySocket, error) {
	s := &NotifySocket{path: filepath.Join(dir, strconv.Itoa(n)), cgroup: cgroup, log: log, ready: make(chan struct{})}
	err := os.MkdirAll(dir, 0o711)
	if err == nil {
		s.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	}
	if err != nil {
		return nil, fmt.Errorf("make notify socket: %w", err)
	}
	if err := s.prepare(); err != nil {
		_ = s.conn.Close()
		return nil, fmt.Errorf("make notify socket: %w", err)
	}
	go s.serve()
	return s, nil
}

// prepare requests the senders' credentials and allows every user to send.
func (s *NotifySocket) prepare() error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	})
	return errors.Join(err, failed, os.Chmod(s.path, 0o666))
}

// Add returns app with the socket added: a mount and NOTIFY_SOCKET in the environment.
func (s *NotifySocket) Add(app spec.Spec) spec.Spec {
	app.Mounts = append(slices.Clip(app.Mounts), spec.Mount{Source: s.path, Target: names.NotifySocket})
	app.Process.Env = append(withoutVariables(app.Process.Env, "NOTIFY_SOCKET"), "NOTIFY_SOCKET="+names.NotifySocket)
	return app
}

// Close stops reading.
func (s *NotifySocket) Close() error { return s.conn.Close() }

// Wait returns when the app is ready, or with ctx's error. What the app has sent before ctx ends counts.
func (s *NotifySocket) Wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
	}
	if err := s.awaitRead(); err != nil && !errors.Is(err, net.ErrClosed) { // the pod may be over
		s.log.Warn("read the app's last notifications", "error", err)
	}
	select {
	case <-s.ready:
		return nil
	default:
		return ctx.Err()
	}
}

// awaitRead returns when serve has read all messages that are in the socket now. It sends one as
// sd_notify_barrier(3) does: a pipe, which serve closes when it has read the messages before.
func (s *NotifySocket) awaitRead() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = s.conn.SetWriteDeadline(time.Now().Add(readLimit))
	if err == nil {
		// The kernel's limit on a socket's messages, which an app may have reached, is not for the socket's own.
		self := &net.UnixAddr{Name: s.path, Net: "unixgram"}
		_, _, err = s.conn.WriteMsgUnix([]byte("BARRIER=1"), unix.UnixRights(int(w.Fd())), self)
	}
	if err = errors.Join(err, w.Close(), r.SetReadDeadline(time.Now().Add(readLimit))); err != nil {
		return err
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// serve reads messages until the socket is closed.
func (s *NotifySocket) serve() {
	message, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, oobn, _, _, err := s.conn.ReadMsgUnix(message, oob)
		if err != nil {
			return
		}
		pid, fds := readControl(oob[:oobn])
		switch {
		case pid == os.Getpid(): // a barrier of awaitRead
		case pid == 0 || elsewhere(pid, s.cgroup):
			s.say(slog.LevelWarn, "notification ignored: the sender is not a process of the app", "pid", pid)
		default:
			s.take(string(message[:n]))
		}
		// A sender may wait until its descriptor is closed, to know that its message has been
		// read (sd_notify_barrier(3)).
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// readControl returns the sender's process ID, 0 if it is not in this PID namespace, and the
// descriptors that it has sent.
func readControl(oob []byte) (pid int, fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, nil
	}
	for i := range messages {
		if rights, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, rights...)
		} else if credentials, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(credentials.Pid)
		}
	}
	return pid, fds
}

// take handles one message: assignments, one to a line. It ignores MAINPID: the main process is
// the one that the supervisor started.
func (s *NotifySocket) take(message string) {
	for line := range strings.SplitSeq(message, "\n") {
		key, value, _ := strings.Cut(line, "=")
		switch {
		case key == "READY" && value == "1":
			s.once.Do(func() { close(s.ready) })
		case key == "STATUS":
			s.takeStatus(value)
		}
	}
}

// readLimit bounds each step of the wait for an ended app's last messages.
const readLimit = time.Second

// maxStatus bounds the part of a status that is logged, in bytes.
const maxStatus = 200

// takeStatus logs a status that differs from the last one.
func (s *NotifySocket) takeStatus(status string) {
	if len(status) > maxStatus {
		status = strings.ToValidUTF8(status[:maxStatus], "") + "…"
	}
	if status != s.status && s.say(slog.LevelInfo, "app's status", "status", status) {
		s.status = status
	}
}

// say logs at most one message a second. It reports whether it logged this one.
func (s *NotifySocket) say(level slog.Level, message string, args ...any) bool {
	if time.Since(s.logged) < time.Second {
		return false
	}
	s.logged = time.Now()
	s.log.Log(context.Background(), level, message, args...)
	return true
}
