package server

import (
	"io"
	"net"
	"testing"
	"time"
)

// halfStream is a client that has sent all, and takes what comes.
type halfStream struct{ got chan string }

func (halfStream) Read([]byte) (int, error) { return 0, io.EOF }

func (s halfStream) Write(p []byte) (int, error) { s.got <- string(p); return len(p), nil }

func (halfStream) Close() error { return nil }

// The answer to a client that sends no more is passed on, and a server in a pod that never ends its connection does not
// keep it for ever.
func TestForwardedConnectionsEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for answers, limit := range map[bool]time.Duration{true: time.Hour, false: time.Millisecond} {
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		inside, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		stream, ended := halfStream{make(chan string, 1)}, make(chan error, 1)
		go func() { ended <- join(stream, connection.(*net.TCPConn), limit) }()
		if _, err := io.ReadAll(inside); err != nil { // its client's end
			t.Error(err)
		}
		if answers {
			if _, err := inside.Write([]byte("answer")); err != nil {
				t.Error(err)
			}
			if got := <-stream.got; got != "answer" {
				t.Errorf("%q", got)
			}
			_ = inside.Close()
		}
		if err := <-ended; (err == nil) != answers {
			t.Errorf("answers %t: %v", answers, err)
		}
		_ = inside.Close()
	}
}

// An answer that takes longer than a server may be silent is passed on to its end.
func TestLongAnswersAreForwarded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	inside, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const limit = time.Second
	stream, ended := halfStream{make(chan string)}, make(chan error, 1)
	go func() { ended <- join(stream, connection.(*net.TCPConn), limit) }()
	pause := time.NewTicker(limit / 10)
	defer pause.Stop()
	for begin := time.Now(); time.Since(begin) < 2*limit; <-pause.C {
		if _, err := inside.Write([]byte("part")); err != nil {
			t.Fatal(err)
		}
		if got := <-stream.got; got != "part" {
			t.Errorf("%q", got)
		}
	}
	_ = inside.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
