package loopback

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Root alone can connect to a socket, which replaces that of a killed server, but neither that of a live one nor a file.
func TestTheSocketIsRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "cri.sock")
	listener, err := Socket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Socket(path); err == nil {
		t.Error("the socket of a live server is replaced")
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = listener.Close()
	if listener, err = Socket(path); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Socket(path)
	if text, _ := os.ReadFile(path); err == nil || string(text) != "kept" {
		t.Errorf("a file is replaced: %q, %v", text, err)
	}
}

// A live server of another type of socket, and one with a full backlog, keep their sockets.
func TestASocketThatRefusesOtherwiseIsKept(t *testing.T) {
	datagrams := filepath.Join(t.TempDir(), "notify")
	packets, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagrams, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	full := filepath.Join(t.TempDir(), "full")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: full}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	waiting, err := net.Dial("unix", full) // nobody accepts it
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	for _, path := range []string{datagrams, full} {
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if listener, err := Socket(path); err == nil {
			t.Errorf("%s is replaced", path)
			_ = listener.Close()
		}
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Of more than MaxStrangers clients the handler of the oldest ends, also if the client has sent more than its request.
func TestTheHandlerOfAClosedStrangerEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "http.sock")
	listener, err := Socket(path)
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	server, clients := Server(listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		close(ended)
	}))
	defer server.Close()
	go func() { _ = server.Serve(clients) }()
	for i := range MaxStrangers + 1 {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if i > 0 {
			continue
		}
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-begun
		if _, err := io.WriteString(client, "more"); err != nil { // package http reads one byte of it
			t.Fatal(err)
		}
	}
	<-ended
}

func TestAddressesAreOfThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9101": true, "127.9.9.9:1": true, "[::1]:9101": true, "unix:///run/a.sock": true,
		"": false, "unix://": false, "unix://a.sock": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false,
		"localhost:1": false, "127.0.0.1": false, "/run/a.sock": false,
	} {
		if err := Check(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}
