package supervisor

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// messageLimit is how many messages wait for the reader of stderr.
	messageLimit = 1024
	// flushLimit bounds the wait for that reader at the end.
	flushLimit = time.Second
)

// Messages is an io.Writer for a program's own messages that never blocks: the
// daemon may have stopped reading the program's stderr, and the pod must go on. Messages that do
// not fit are dropped; a message with their number follows once there is room.
// Its methods may be called by several goroutines at once.
type Messages struct {
	out   io.Writer     // written by loop only
	ended chan struct{} // closed by loop, read by Close

	mu     sync.Mutex
	queue  chan []byte // sent to and closed with mu held, read by loop
	lost   int         // guarded by mu; messages dropped since the last that was queued
	closed bool        // guarded by mu
}

// NewMessages starts passing messages on to out, one Write for each Write.
func NewMessages(out io.Writer) *Messages {
	m := &Messages{out: out, ended: make(chan struct{}), queue: make(chan []byte, messageLimit)}
	go m.loop()
	return m
}

// Write queues a message, or drops it. It never returns an error.
func (m *Messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return len(p), nil
	}
	message := append([]byte(nil), p...)
	if m.lost > 0 {
		message = append(fmt.Appendf(nil, "%d messages lost: stderr was not read in time\n", m.lost), message...)
	}
	select {
	case m.queue <- message:
		m.lost = 0
	default:
		m.lost++
	}
	return len(p), nil
}

func (m *Messages) loop() {
	defer close(m.ended)
	for message := range m.queue {
		// There is nowhere else to report an error.
		_, _ = m.out.Write(message)
	}
}

// Close waits up to a second until the queued messages have been passed on. Later
// messages are dropped. It may be called again. The error is always nil.
func (m *Messages) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.queue)
	}
	m.mu.Unlock()
	select {
	case <-m.ended:
	case <-time.After(flushLimit):
	}
	return nil
}
