package output

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// backlogLimit is how far an attachment may be behind the app, in bytes
	// besides what its pipe holds; then it is dropped. An app can print tens of
	// megabytes at once, in less time than a terminal, or any reader on a busy machine,
	// takes to show a tenth of them: a reader is not dropped for that. The
	// memory is taken only while an attachment is behind, and once for each stream, since
	// all attachments share what is kept.
	backlogLimit = 40 << 20
	// chunkCost is what a chunk counts besides its text.
	chunkCost = 64
	// stallBehind is how far behind an attachment may be while it reads nothing, such as a
	// terminal that its user has stopped. An attachment that is further behind, or
	// whose app has ended, is dropped when it has read nothing for stallLimit.
	stallBehind = 4 << 20
	stallLimit  = 10 * time.Second
)

// chunk is the text of one read of an app's output. The last chunk of a backlog is
// empty; the next read fills it.
type chunk struct {
	text []byte
	next *chunk // nil in the last
}

// backlog is one output of a run on its way to the attachments: a list of chunks
// with a position for each sender. Chunks before all positions are garbage, so
// the backlog holds nothing while the senders keep up, and while nothing is attached.
type backlog struct {
	mu      sync.Mutex
	change  sync.Cond            // on mu: another chunk, or a sender's ending or closed
	last    *chunk               // guarded by mu
	senders map[*sender]struct{} // guarded by mu; those that are started and not closed
}

func newBacklog() *backlog {
	b := &backlog{last: new(chunk), senders: make(map[*sender]struct{})}
	b.change.L = &b.mu
	return b
}

// add passes a copy of text to all senders, and never waits for them.
func (b *backlog) add(text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.senders) == 0 {
		return
	}
	b.last.text, b.last.next = bytes.Clone(text), new(chunk)
	b.last = b.last.next
	for s := range b.senders {
		before := s.behind
		s.behind += len(text) + chunkCost
		switch {
		case s.behind > backlogLimit:
			delete(b.senders, s)
			go s.fail(ErrDropped) // it waits for a write under way
		case s.behind > stallBehind && before <= stallBehind:
			s.limitWrite()
		}
	}
	b.change.Broadcast()
}

// sender writes one output to an attachment's pipe. A goroutine of its own
// writes to it, and it alone waits for the reader.
type sender struct {
	w    *os.File    // non-blocking, so that the wait takes no thread
	fail func(error) // ends the attachment, with the reason; it may be called twice
	done func()      // called once the last byte has been written after end
	from *backlog

	next   *chunk // guarded by from.mu; the next to be written
	behind int    // guarded by from.mu; the cost of the chunks from next on
	ending bool   // guarded by from.mu; no chunk will be added
	closed bool   // guarded by from.mu
}

// start makes the sender write what is added from now on. It is called once.
func (s *sender) start() {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	s.next = s.from.last
	s.from.senders[s] = struct{}{}
	go s.pump()
}

func (s *sender) pump() {
	for text := s.take(); text != nil; text = s.take() {
		if err := s.write(text); err != nil {
			s.fail(err)
			return
		}
	}
	if s.close() {
		s.done()
	}
}

// write writes text in parts of a page: a reader that takes one within stallLimit has not stalled.
func (s *sender) write(text []byte) error {
	for part := range slices.Chunk(text, 4096) {
		s.renewLimit()
		if _, err := s.w.Write(part); os.IsTimeout(err) {
			return ErrDropped
		} else if err != nil {
			return err
		}
	}
	return nil
}

// take waits for the next chunk's text. It returns nil after the end.
func (s *sender) take() []byte {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	for !s.closed && !s.ending && s.next.next == nil {
		s.from.change.Wait()
	}
	if s.closed || s.next.next == nil {
		return nil
	}
	text := s.next.text
	s.next = s.next.next
	before := s.behind
	s.behind -= len(text) + chunkCost
	if !s.ending && before > stallBehind && s.behind <= stallBehind {
		_ = s.w.SetWriteDeadline(time.Time{}) // it has caught up
	}
	return text
}

// renewLimit bounds the next write if the reader must not stall.
func (s *sender) renewLimit() {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	if s.ending || s.behind > stallBehind {
		s.limitWrite()
	}
}

// end makes the sender close the pipe after the last byte.
func (s *sender) end() {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	s.ending = true
	s.limitWrite()
	s.from.change.Broadcast()
}

// limitWrite bounds the time of the write that is under way or comes next. A reader that is
// slow and has not stalled is bounded by backlogLimit.
func (s *sender) limitWrite() { _ = s.w.SetWriteDeadline(time.Now().Add(stallLimit)) }

// close closes the pipe at once. It returns false when the pipe was closed already.
func (s *sender) close() bool {
	s.from.mu.Lock()
	if s.closed {
		s.from.mu.Unlock()
		return false
	}
	s.closed, s.next = true, nil
	delete(s.from.senders, s)
	s.from.change.Broadcast()
	s.from.mu.Unlock()
	_ = s.w.Close() // without mu, since it waits for a write under way
	return true
}
