package supervisor

import (
	"bytes"
	"os"
	"sync"
	"time"
)

const (
	// backlogLimit is how far an attachment may be behind the app, in bytes
	// beyond what its pipe holds; then it is dropped. An app prints some ten
	// megabytes at once in less time than a terminal, or any reader on a busy machine,
	// takes to show a tenth of it: that alone is no reason to drop one that reads. The
	// memory is taken only while somebody is behind, and by all attachments together
	// once for each stream, since they share what is kept.
	backlogLimit = 40 << 20
	// pieceCost is what a piece is counted as, besides its text.
	pieceCost = 64
	// stallBehind is how far behind one may be that takes nothing for a while, such as a
	// terminal that somebody has stopped. Further behind, and after the app's end,
	// it is dropped after stallLimit.
	stallBehind = 4 << 20
	stallLimit  = 10 * time.Second
)

// piece is the text of one read of an app's output. The last piece of a backlog is
// empty; the next read fills it.
type piece struct {
	text []byte
	next *piece // nil in the last
}

// backlog is one output of a run on its way to the attachments: a list of pieces
// in which each outlet has a place of its own. What all have passed is garbage, so
// while they keep up, and while there is none, it holds nothing.
type backlog struct {
	mu      sync.Mutex
	change  sync.Cond            // on mu: another piece, or an outlet's ending or closed
	last    *piece               // guarded by mu
	outlets map[*outlet]struct{} // guarded by mu
}

func newBacklog() *backlog {
	b := &backlog{last: new(piece), outlets: make(map[*outlet]struct{})}
	b.change.L = &b.mu
	return b
}

// add hands text on to all outlets, and waits for none of them.
func (b *backlog) add(text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.outlets) == 0 {
		return
	}
	b.last.text, b.last.next = bytes.Clone(text), new(piece)
	b.last = b.last.next
	for o := range b.outlets {
		before := o.behind
		o.behind += len(text) + pieceCost
		switch {
		case o.behind > backlogLimit:
			delete(b.outlets, o)
			go o.fail(ErrDropped) // it waits for a write under way
		case o.behind > stallBehind && before <= stallBehind:
			o.hurry()
		}
	}
	b.change.Broadcast()
}

// outlet is the writing side of an attachment's pipe. A goroutine of its own
// writes to it, and it alone waits for the reader.
type outlet struct {
	w    *os.File // non-blocking, so that the wait takes no thread
	fail func(error)
	done func() // called once the last byte has been written after end
	from *backlog

	next   *piece // guarded by from.mu, as the rest is
	behind int    // from next on
	ending bool
	closed bool
}

func newOutlet(w *os.File, from *backlog, fail func(error), done func()) *outlet {
	return &outlet{w: w, from: from, fail: fail, done: done}
}

// start has the outlet get what is added from now on. It is called once.
func (o *outlet) start() {
	o.from.mu.Lock()
	defer o.from.mu.Unlock()
	o.next = o.from.last
	o.from.outlets[o] = struct{}{}
	go o.pump()
}

func (o *outlet) pump() {
	for text := o.take(); text != nil; text = o.take() {
		if _, err := o.w.Write(text); err != nil {
			if os.IsTimeout(err) {
				err = ErrDropped
			}
			o.fail(err)
			return
		}
	}
	if o.close() {
		o.done()
	}
}

// take waits for the next piece's text. There is none after the end.
func (o *outlet) take() []byte {
	o.from.mu.Lock()
	defer o.from.mu.Unlock()
	for !o.closed && !o.ending && o.next.next == nil {
		o.from.change.Wait()
	}
	if o.closed || o.next.next == nil {
		return nil
	}
	text := o.next.text
	o.next = o.next.next
	before := o.behind
	o.behind -= len(text) + pieceCost
	switch {
	case o.ending || o.behind > stallBehind:
		o.hurry()
	case before > stallBehind:
		_ = o.w.SetWriteDeadline(time.Time{}) // there is time again
	}
	return text
}

// end has the pipe closed behind its last byte.
func (o *outlet) end() {
	o.from.mu.Lock()
	defer o.from.mu.Unlock()
	o.ending = true
	o.hurry()
	o.from.change.Broadcast()
}

// hurry bounds the write that is under way or comes next. What it cannot bound
// is bounded by backlogLimit.
func (o *outlet) hurry() { _ = o.w.SetWriteDeadline(time.Now().Add(stallLimit)) }

// close closes the pipe at once. It says false when it was closed already.
func (o *outlet) close() bool {
	o.from.mu.Lock()
	if o.closed {
		o.from.mu.Unlock()
		return false
	}
	o.closed, o.next = true, nil
	delete(o.from.outlets, o)
	o.from.change.Broadcast()
	o.from.mu.Unlock()
	_ = o.w.Close() // without mu, for it waits for a write under way
	return true
}
