package supervisor

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// messageLimit is how many messages wait for the reader of stderr.
	messageLimit = 1024
	// flushLimit bounds the wait for that reader at the end.
	flushLimit = time.Second
	// leastLimit is the least that Limit takes: the messages of a pod's start are kept.
	leastLimit = 1 << 20
	// defaultLimit is the limit until Limit is called.
	defaultLimit = 10 << 20
)

// Messages is an io.Writer for a program's own messages that never blocks: the
// daemon may have stopped reading the program's stderr, and the pod must go on. Messages that do
// not fit are dropped; a message with their number follows once there is room.
//
// If the messages go to a regular file, the file is limited, see Limit.
// Its methods may be called by several goroutines at once.
type Messages struct {
	out   io.Writer     // written by loop only
	ended chan struct{} // closed by loop, read by Close
	limit atomic.Int64  // of out's size

	mu     sync.Mutex
	queue  chan []byte // sent to and closed with mu held, read by loop
	lost   int         // guarded by mu; messages dropped since the last that was queued
	closed bool        // guarded by mu
}

// NewMessages starts passing messages on to out, one Write for each Write.
func NewMessages(out io.Writer) *Messages {
	m := &Messages{out: out, ended: make(chan struct{}), queue: make(chan []byte, messageLimit)}
	m.limit.Store(defaultLimit)
	go m.loop()
	return m
}

// Limit sets the size in bytes, at least 1 MiB, beyond which the file that takes the messages loses its older half.
// The limit is 10 MiB before. It is for the whole file: the daemon's lines in it count, and
// those that it had before. A line that the daemon writes in the moment of the cut is lost, see trim; this
// program's are not.
func (m *Messages) Limit(bytes int64) { m.limit.Store(max(bytes, leastLimit)) }

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
	file, _ := m.out.(*os.File)
	for message := range m.queue {
		// There is nowhere else to report an error.
		_, _ = m.out.Write(message)
		if file != nil {
			_ = trim(file, m.limit.Load())
		}
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
