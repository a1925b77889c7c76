package callins

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A caller that sends no request takes one of the places of calls for a limited time only.
func TestASilentCallerIsGivenUp(t *testing.T) {
	t.Parallel() // it waits for a limit
	path := filepath.Join(t.TempDir(), "control.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { (&Server{Log: slog.New(slog.DiscardHandler)}).Serve(ctx, listener) })
	silent, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.SetReadDeadline(time.Now().Add(timeLimit)); err != nil {
		t.Fatal(err)
	}
	var answer reply
	if _, err := (conn{silent}).receive(&answer); err != nil || answer.Kind != kindError || !strings.Contains(answer.Message, "timeout") {
		t.Errorf("%+v, %v", answer, err)
	}
	stop()
	served.Wait()
}

// A reader of what a command writes sees its end when the command closes it, while the command runs on.
func TestACommandsOutputEndsWhenTheCommandClosesIt(t *testing.T) {
	p := newPod(t, sleeper)
	none := null(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c := rawCall(t, p)
	defer c.Close()
	err = askRun(c, request{App: "app"}, []byte(shell(t, "echo text; exec sleep infinity >&2")), none, write, none)
	if err := errors.Join(err, write.Close(), read.SetReadDeadline(time.Now().Add(timeLimit/2))); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(read); string(text) != "text\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, _, err := c.next(kindStarted); err != nil {
		t.Error(err)
	}
}
