package line

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// Window is how many bytes of a stream may be under way: sent, and not yet
	// read. Every stream begins with so much credit.
	Window = 64 << 10

	// maxNotes bounds the notes that have not been read.
	maxNotes = 64
)

// Channel is one end of a channel. Its methods, and those of its readers and
// writers, may be called by several goroutines at once; the bytes of two Writes at once to
// the same stream may be mixed.
type Channel struct {
	line  *Line
	id    uint32
	notes chan []byte
	done  chan struct{}

	mu      sync.Mutex
	changed sync.Cond         // anything below
	in      [Streams]incoming // guarded by mu, as all that follows
	out     [Streams]outgoing //
	over    bool              // done and notes are closed
	result  []byte            //
	err     error             // why it is over without a result
}

// incoming is a stream from the other end.
type incoming struct {
	unread []byte // at most Window
	owed   int    // bytes that were read and for which no credit has been sent
	ended  bool
}

// outgoing is a stream to the other end.
type outgoing struct {
	credit int // bytes, 0 to Window
	ended  bool
}

func newChannel(l *Line, id uint32) *Channel {
	ch := &Channel{line: l, id: id, notes: make(chan []byte, maxNotes), done: make(chan struct{})}
	ch.changed.L = &ch.mu
	for i := range ch.out {
		ch.out[i].credit = Window
	}
	return ch
}

// Reader returns stream n from the other end. Read returns io.EOF after the last byte if
// the other end has ended the stream or either end has closed the channel, and
// the reason if the line is over.
func (ch *Channel) Reader(n int) io.Reader { return reader{ch, n} }

// Writer returns stream n to the other end. Write waits until the other end has
// read all but Window bytes; it returns ErrClosed once the channel is over. Close
// ends the stream.
func (ch *Channel) Writer(n int) io.WriteCloser { return writer{ch, n} }

// Note sends a message of at most MaxPayload bytes beside the streams. The
// other end drops it if it has too many that it has not read.
func (ch *Channel) Note(message []byte) error {
	if len(message) > MaxPayload {
		return fmt.Errorf("note has %d bytes, want at most %d", len(message), MaxPayload)
	}
	if ch.isOver() {
		return ErrClosed
	}
	return ch.line.send(frame{channel: ch.id, kind: kindNote, payload: message})
}

// Notes returns the other end's notes. It is closed when the channel is over.
func (ch *Channel) Notes() <-chan []byte { return ch.notes }

// Close ends the channel with a result of at most MaxPayload bytes. What was
// written before arrives before the result. On a channel that is over it does nothing.
func (ch *Channel) Close(result []byte) error {
	if len(result) > MaxPayload {
		return fmt.Errorf("result has %d bytes, want at most %d", len(result), MaxPayload)
	}
	if !ch.finish(nil, ErrClosed) {
		return nil
	}
	ch.line.forget(ch)
	return ch.line.send(frame{channel: ch.id, kind: kindClose, payload: result})
}

// Done is closed when the channel is over. What has arrived can still be read.
func (ch *Channel) Done() <-chan struct{} { return ch.done }

// Result returns, once Done is closed, the result with which the other end has
// closed the channel. The error is ErrClosed if this end closed it, else why the line is over.
func (ch *Channel) Result() ([]byte, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.result, ch.err
}

func (ch *Channel) isOver() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.over
}

// finish ends the channel and says whether it was not over yet.
func (ch *Channel) finish(result []byte, err error) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.over {
		return false
	}
	ch.over, ch.result, ch.err = true, result, err
	close(ch.done)
	close(ch.notes)
	ch.changed.Broadcast()
	return true
}

// take handles a frame of the other end's.
func (ch *Channel) take(f frame) error {
	if f.kind == kindClose {
		ch.line.forget(ch)
		ch.finish(f.payload, nil)
		return nil
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.over {
		return nil
	}
	defer ch.changed.Broadcast()
	in, out := &ch.in[f.stream], &ch.out[f.stream]
	switch f.kind {
	case kindData:
		if len(in.unread)+in.owed+len(f.payload) > Window {
			return fmt.Errorf("%w: it sends more of stream %d than it may", ErrPeer, f.stream)
		}
		if !in.ended {
			in.unread = append(in.unread, f.payload...)
		}
	case kindEnd:
		in.ended = true
	case kindCredit:
		more := binary.BigEndian.Uint32(f.payload)
		if uint64(out.credit)+uint64(more) > Window {
			return fmt.Errorf("%w: it grants %d bytes of credit", ErrPeer, more)
		}
		out.credit += int(more)
	case kindNote:
		select {
		case ch.notes <- f.payload:
		default:
		}
	case kindOpen, kindClose: // not here
	}
	return nil
}

type reader struct {
	ch     *Channel
	stream int
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, credit, err := r.ch.read(r.stream, p)
	if credit > 0 {
		payload := binary.BigEndian.AppendUint32(nil, uint32(credit))
		// If it fails, the line is over, and so says the next Read.
		_ = r.ch.line.send(frame{channel: r.ch.id, kind: kindCredit, stream: uint8(r.stream), payload: payload})
	}
	return n, err
}

// read takes what there is of a stream. It returns the credit to send for it, if
// that is enough to be worth a frame.
func (ch *Channel) read(stream int, p []byte) (n, credit int, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	in := &ch.in[stream]
	for len(in.unread) == 0 {
		switch {
		case in.ended:
			return 0, 0, io.EOF
		case ch.over && (ch.err == nil || errors.Is(ch.err, ErrClosed)):
			return 0, 0, io.EOF
		case ch.over:
			return 0, 0, ch.err
		case len(p) == 0:
			return 0, 0, nil
		}
		ch.changed.Wait()
	}
	n = copy(p, in.unread)
	if in.unread = in.unread[n:]; len(in.unread) == 0 {
		in.unread = nil
	}
	in.owed += n
	if in.owed >= Window/2 && !ch.over && !in.ended {
		credit, in.owed = in.owed, 0
	}
	return n, credit, nil
}

type writer struct {
	ch     *Channel
	stream int
}

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := w.ch.reserve(w.stream, min(len(p)-written, MaxPayload))
		if err != nil {
			return written, err
		}
		f := frame{channel: w.ch.id, kind: kindData, stream: uint8(w.stream), payload: p[written : written+n]}
		if err := w.ch.line.send(f); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// Close implements io.Closer. A stream or channel that is over is not an error.
func (w writer) Close() error {
	ch := w.ch
	ch.mu.Lock()
	over := ch.over || ch.out[w.stream].ended
	ch.out[w.stream].ended = true
	ch.mu.Unlock()
	if over {
		return nil
	}
	return ch.line.send(frame{channel: ch.id, kind: kindEnd, stream: uint8(w.stream)})
}

// reserve waits for credit and takes at most n bytes of it.
func (ch *Channel) reserve(stream, n int) (int, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	out := &ch.out[stream]
	for out.credit == 0 && !ch.over && !out.ended {
		ch.changed.Wait()
	}
	if ch.over || out.ended {
		return 0, ErrClosed
	}
	n = min(n, out.credit)
	out.credit -= n
	return n, nil
}
