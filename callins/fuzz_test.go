package callins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/supervisortest"
)

// FuzzServer looks for packets of a caller that make the server panic, hang, keep a
// descriptor or answer outside the protocol. In packets a zero byte ends a packet, whose first byte is the number of
// descriptors that go with it.
func FuzzServer(f *testing.F) {
	for _, packets := range []string{
		`0{"version":4,"call":"status"}`, `0{"version":4,"call":"isolators","args":["app"]}`, `0{"version":3,"call":"attach","app":"app"}` + "\x000" + `{"width":1,"height":1}`,
		`4{"version":4,"call":"run","app":"app","width":80,"height":24,"term":"vt100"}` + "\x000" + `{"signal":15}`,
		`0{"version":4,"call":"uptime","args":["a"]}` + "\x000" + `{"process":1}`, `9{}`, `0`, "",
	} {
		f.Add([]byte(packets), []byte(someSettings))
	}
	apps := []testApp{{Name: "app", Args: []string{"/bin/true"}}}
	// The pod does not run: the handlers come to the point at which they need an app's process.
	pod := supervisor.New(supervisor.Config{Apps: definitions(supervisortest.NewRuntime("/callins-fuzz"), apps)})
	server := &Server{Handlers: handlers(pod, apps), Log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, packets, settings []byte) {
		before := openDescriptors(t)
		near, far := connected(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		served := make(chan struct{})
		go func() {
			defer close(served)
			server.serve(ctx, far)
		}()
		for packet := range bytes.SplitSeq(packets, []byte{0}) {
			sendRaw(t, near, packet, settings)
		}
		if err := near.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		checkReplies(t, near)
		<-served
		near.Close()
		if ctx.Err() != nil {
			t.Errorf("the server hangs with %q", packets)
		}
		if after := openDescriptors(t); after != before {
			t.Errorf("%d descriptors are open after %q, before %d", after, packets, before)
		}
	})
}

// connected returns the two ends of a call.
func connected(t *testing.T) (near, far conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]conn, 2)
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn{c.(*net.UnixConn)}
	}
	return ends[0], ends[1]
}

// sendRaw sends one packet with descriptors: sealed settings, then copies of /dev/null. The server may have
// ended the call already.
func sendRaw(t *testing.T, c conn, packet, settings []byte) {
	t.Helper()
	if len(packet) == 0 {
		return
	}
	count := int(packet[0]-'0') % 10
	var control []byte
	if count > 0 {
		memory, err := sealed("settings", settings)
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		all := append([]*os.File{memory}, slices.Repeat([]*os.File{null}, count-1)...)
		fds, err := descriptors(all)
		if err != nil {
			t.Fatal(err)
		}
		control = unix.UnixRights(fds...)
	}
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil { // the server need not read all
		t.Fatal(err)
	}
	_, _, _ = c.WriteMsgUnix(packet[1:], control, nil)
}

// checkReplies reads all replies, which must be the protocol's.
func checkReplies(t *testing.T, c conn) {
	t.Helper()
	kinds := []kind{kindProcess, kindDocument, kindStarted, kindStreams, kindExit, kindDropped, kindError}
	for last := kind(""); ; {
		var r json.RawMessage
		p, err := c.receive(&r)
		p.close()
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return
		}
		var parsed reply
		decoder := json.NewDecoder(bytes.NewReader(r))
		decoder.DisallowUnknownFields()
		if err := errors.Join(err, decoder.Decode(&parsed)); err != nil || !slices.Contains(kinds, parsed.Kind) {
			t.Fatalf("%v: reply %s", err, r)
		}
		if last == kindError {
			t.Errorf("%s after an error", r)
		}
		last = parsed.Kind
	}
}

// openDescriptors returns the number of this process's descriptors.
func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
