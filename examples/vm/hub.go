package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/examples/vm/line"
)

// maxCalls is how many call-ins are under way at once; more wait to be accepted.
const maxCalls = 256

// acceptPause is the wait after an accept that failed.
const acceptPause = 50 * time.Millisecond

// hub joins callers on the control socket with the guest.
type hub struct {
	guest *line.Line
	slots chan struct{}
	calls underWay
}

// underWay are the calls that are under way.
type underWay struct{ lock sync.RWMutex }

// lastWords bounds how long wait waits: the callers of attach receive the exit status of
// their app after its end.
const lastWords = 2 * time.Second

// do runs a call. After wait it blocks for ever.
func (u *underWay) do(call func()) {
	u.lock.RLock()
	defer u.lock.RUnlock()
	call()
}

// wait returns when no call is under way, or after lastWords. It is called once, when the
// program is about to end.
func (u *underWay) wait() {
	idle := make(chan struct{})
	go func() {
		u.lock.Lock()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(lastWords):
	}
}

// listen makes the control socket, mode 0600. The caller closes it.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// The mode of the unbound socket becomes that of the file (unix(7)).
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) { inner = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, inner)
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for call-ins: %w", err)
	}
	return listener.(*net.UnixListener), nil
}

// serve answers callers until the listener is closed. It does not wait for the calls
// that are under way: they end with the guest.
func (h *hub) serve(listener *net.UnixListener) {
	for {
		h.slots <- struct{}{}
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for a moment
			<-h.slots
			time.Sleep(acceptPause)
			continue
		}
		go func() {
			defer func() { <-h.slots }()
			// A caller that breaks the protocol ends its own connection.
			_ = line.New(conn, line.EndB, func(caller *line.Channel, text []byte) {
				h.calls.do(func() { h.relay(caller, text) })
			}).Serve()
		}()
	}
}

// relay makes a caller's call in the guest.
func (h *hub) relay(caller *line.Channel, text []byte) {
	var req request
	if err := json.Unmarshal(text, &req); err != nil || req.Use != useCall {
		refuse(caller, errors.New("not the request of a call-in"))
		return
	}
	guest, err := h.guest.Open(text)
	if err != nil {
		refuse(caller, errDied)
		return
	}
	join(caller, guest)
	text, err = guest.Result()
	if err != nil {
		text = encode(result{Code: exitFailed, Error: errDied.Error()})
	}
	_ = caller.Close(text) // a caller that has gone needs none
}

// errDied is what callers receive when the virtual machine is gone.
var errDied = errors.New("the virtual machine has ended")

func refuse(ch *line.Channel, err error) {
	_ = ch.Close(encode(result{Code: exitFailed, Error: inOneLine(err)}))
}

// join carries streams and notes between two channels until the guest's is over and
// the caller has all of its output. If the caller goes first, the guest's is closed.
func join(caller, guest *line.Channel) {
	for _, input := range []int{0, 3} {
		go pass(guest, caller, input)
	}
	go passNotes(guest, caller)
	go passNotes(caller, guest)
	var outputs sync.WaitGroup
	for _, output := range []int{1, 2} {
		outputs.Go(func() { pass(caller, guest, output) })
	}
	select {
	case <-caller.Done():
		_ = guest.Close(nil)
	case <-guest.Done():
	}
	outputs.Wait()
}

// pass copies one stream to its end.
func pass(to, from *line.Channel, stream int) {
	writer := to.Writer(stream)
	// The copy ends with either channel; join closes the other one.
	_, _ = io.Copy(writer, from.Reader(stream))
	_ = writer.Close()
}

func passNotes(to, from *line.Channel) {
	for text := range from.Notes() {
		_ = to.Note(text)
	}
}
