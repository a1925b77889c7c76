package output

import (
	"bytes"
	"os"
	"sync"
	"time"
)

const (
	// backlogLimit bounds what the backlogs of a Collector keep together, in bytes; beyond it
	// the attachment that is the furthest behind is dropped. An app can print tens of
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

// backlogs are what the backlogs of a Collector have in common.
type backlogs struct {
	mu      sync.Mutex
	senders map[*sender]struct{} // guarded by mu; those that are started, and neither dropped nor closed
	kept    int                  // guarded by mu; what the backlogs keep
}

func newBacklogs() *backlogs { return &backlogs{senders: make(map[*sender]struct{})} }

// backlog is one output of a run on its way to the attachments: a list of chunks
// with a position for each sender. Chunks before all positions are garbage, so
// the backlog holds nothing while the senders keep up, and while nothing is attached.
type backlog struct {
	all     *backlogs
	change  sync.Cond            // on all.mu: another chunk, or a sender's ending or closed
	last    *chunk               // guarded by all.mu
	senders map[*sender]struct{} // guarded by all.mu; those of all.senders that write this output
	kept    int                  // guarded by all.mu; the cost of the chunks from the first position on
}

func newBacklog(all *backlogs) *backlog {
	b := &backlog{all: all, last: new(chunk), senders: make(map[*sender]struct{})}
	b.change.L = &all.mu
	return b
}

// add passes a copy of text to all senders, and never waits for them.
func (b *backlog) add(text []byte) {
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	if len(b.senders) == 0 {
		return
	}
	b.last.text, b.last.next = bytes.Clone(text), new(chunk)
	b.last = b.last.next
	cost := len(text) + chunkCost
	b.kept, b.all.kept = b.kept+cost, b.all.kept+cost
	for s := range b.senders {
		before := s.behind
		s.behind += cost
		if s.behind > stallBehind && before <= stallBehind {
			s.limitWrite()
		}
	}
	for b.all.kept > backlogLimit {
		b.all.dropSlowest()
	}
	b.change.Broadcast()
}

// count updates what the backlog keeps after a sender that was behind by so much has less to write. All apps' output
// waits meanwhile: it looks for another sender only if that one was the furthest behind, and until one is as far. The
// caller holds all.mu.
func (b *backlog) count(behind int) {
	if behind < b.kept {
		return
	}
	kept := 0
	for s := range b.senders {
		if s.behind == b.kept {
			return
		}
		kept = max(kept, s.behind)
	}
	b.all.kept += kept - b.kept
	b.kept = kept
}

// dropSlowest drops the sender that is the furthest behind. The caller holds mu.
func (all *backlogs) dropSlowest() {
	var slowest *sender
	for s := range all.senders {
		if slowest == nil || s.behind > slowest.behind {
			slowest = s
		}
	}
	slowest.forget()
	go slowest.fail(ErrDropped) // it waits for a write under way
}

// sender writes one output to an attachment's pipe. A goroutine of its own
// writes to it, and it alone waits for the reader.
type sender struct {
	w    *os.File    // non-blocking, so that the wait takes no thread
	fail func(error) // ends the attachment, with the reason; it may be called twice
	done func()      // called once the last byte has been written after end
	from *backlog

	// guarded by from.all.mu
	next   *chunk // the next to be written; nil for none, after ignore or close
	behind int    // the cost of the chunks from next on
	ending bool   // no chunk will be added
	closed bool
}

// start makes the sender write what is added from now on. It is called once.
func (s *sender) start() {
	s.from.all.mu.Lock()
	defer s.from.all.mu.Unlock()
	s.next = s.from.last
	s.from.senders[s], s.from.all.senders[s] = struct{}{}, struct{}{}
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

// write writes text. A reader that takes some of it within stallLimit has not stalled.
func (s *sender) write(text []byte) error {
	for {
		s.renewLimit()
		n, err := s.w.Write(text)
		if !os.IsTimeout(err) {
			return err
		}
		if n == 0 {
			return ErrDropped
		}
		text = text[n:]
	}
}

// take waits for the next chunk's text. It returns nil after the end.
func (s *sender) take() []byte {
	s.from.all.mu.Lock()
	defer s.from.all.mu.Unlock()
	for !s.closed && !s.ending && (s.next == nil || s.next.next == nil) {
		s.from.change.Wait()
	}
	if s.next == nil || s.next.next == nil {
		return nil
	}
	text := s.next.text
	s.next = s.next.next
	before := s.behind
	s.behind -= len(text) + chunkCost
	s.from.count(before)
	if !s.ending && before > stallBehind && s.behind <= stallBehind {
		_ = s.w.SetWriteDeadline(time.Time{}) // it has caught up
	}
	return text
}

// renewLimit bounds the next write if the reader must not stall.
func (s *sender) renewLimit() {
	s.from.all.mu.Lock()
	defer s.from.all.mu.Unlock()
	if s.ending || s.behind > stallBehind {
		s.limitWrite()
	}
}

// ignore makes the sender write no more.
func (s *sender) ignore() {
	s.from.all.mu.Lock()
	defer s.from.all.mu.Unlock()
	s.next = nil
	s.forget()
}

// end makes the sender close the pipe after the last byte.
func (s *sender) end() {
	s.from.all.mu.Lock()
	defer s.from.all.mu.Unlock()
	s.ending = true
	s.limitWrite()
	s.from.change.Broadcast()
}

// limitWrite bounds the time of the write that is under way or comes next. A reader that is
// slow and has not stalled is bounded by backlogLimit.
func (s *sender) limitWrite() { _ = s.w.SetWriteDeadline(time.Now().Add(stallLimit)) }

// close closes the pipe at once. It returns false when the pipe was closed already.
func (s *sender) close() bool {
	s.from.all.mu.Lock()
	if s.closed {
		s.from.all.mu.Unlock()
		return false
	}
	s.closed, s.next = true, nil
	s.forget()
	s.from.change.Broadcast()
	s.from.all.mu.Unlock()
	_ = s.w.Close() // without mu, since it waits for a write under way
	return true
}

// forget takes the sender out of its backlog, which keeps nothing for it any more. The caller holds from.all.mu.
func (s *sender) forget() {
	delete(s.from.senders, s)
	delete(s.from.all.senders, s)
	s.from.count(s.behind)
}
