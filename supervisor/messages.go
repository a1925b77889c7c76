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

// Messages is an io.Writer for a program's own messages that never blocks:
// whoever reads its stderr may have stopped, and the pod must go on. What does
// not fit is dropped, and how much it was is said once there is room.
// Its methods may be called by several goroutines at once.
type Messages struct {
	out   io.Writer
	ended chan struct{}

	mu     sync.Mutex
	queue  chan []byte // sent to and closed with mu held
	lost   int         // guarded by mu
	closed bool        // guarded by mu
}

// NewMessages starts handing on to out what is written, one Write each.
func NewMessages(out io.Writer) *Messages {
	m := &Messages{out: out, ended: make(chan struct{}), queue: make(chan []byte, messageLimit)}
	go m.loop()
	return m
}

// Write takes a message, or drops it. It never returns an error.
func (m *Messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return len(p), nil
	}
	message := append([]byte(nil), p...)
	if m.lost > 0 {
		message = append(fmt.Appendf(nil, "%d messages lost: nobody read them\n", m.lost), message...)
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
		// There is nowhere else to tell an error.
		_, _ = m.out.Write(message)
	}
}

// Close waits up to a second for what has been written to be handed on. What
// is written later is dropped. It may be called again.
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
