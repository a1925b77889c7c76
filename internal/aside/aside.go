// Package aside reads and hashes in goroutines of their own, so that a file's bytes are read, decompressed, hashed and
// written on several processors at once. Each holds up to 512 KiB.
package aside

import (
	"fmt"
	"hash"
	"io"
)

const (
	bufferSize = 128 << 10
	buffers    = 4
)

// newBuffers returns the buffers that go round between two goroutines.
func newBuffers() chan []byte {
	free := make(chan []byte, buffers)
	for range buffers {
		free <- make([]byte, bufferSize)
	}
	return free
}

// Reader reads ahead.
type Reader struct {
	free        chan []byte
	full        chan part
	stop, ended chan struct{}

	now  part // what is read now
	next int  // byte of it
}

// part is what a Reader has read at once, with the error that followed.
type part struct {
	buffer []byte
	n      int
	err    error
}

// Read returns a reader of in that reads ahead of its caller, who must call Close. Nobody else uses in until then.
func Read(in io.Reader) *Reader {
	r := &Reader{
		free: newBuffers(), full: make(chan part, buffers), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go r.fill(in)
	return r
}

func (r *Reader) fill(in io.Reader) {
	defer close(r.ended)
	for {
		var p part
		select {
		case p.buffer = <-r.free:
		case <-r.stop:
			return
		}
		p.fill(in)
		r.full <- p // which has room for all buffers
		if p.err != nil {
			return
		}
	}
}

// fill reads until the buffer is full or an error follows. A decoder's panic is such an error: in this goroutine it
// would end the process, which has other callers.
func (p *part) fill(in io.Reader) {
	defer func() {
		if panicked := recover(); panicked != nil {
			p.err = fmt.Errorf("decoder: %v", panicked)
		}
	}()
	for p.n < len(p.buffer) && p.err == nil {
		n, err := in.Read(p.buffer[p.n:])
		p.n, p.err = p.n+n, err
	}
}

// Read implements io.Reader. It must not be called after Close.
func (r *Reader) Read(p []byte) (int, error) {
	for r.next == r.now.n {
		if r.now.err != nil {
			return 0, r.now.err
		}
		if r.now.buffer != nil {
			r.free <- r.now.buffer
		}
		r.now, r.next = <-r.full, 0
	}
	n := copy(p, r.now.buffer[r.next:r.now.n])
	r.next += n
	return n, nil
}

// Close ends the reading ahead, and waits until nothing reads any more. It may be called again.
func (r *Reader) Close() {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	<-r.ended
}

// Hash hashes what is written to it.
type Hash struct {
	of         hash.Hash
	free, full chan []byte
	ended      chan struct{}
	closed     bool

	now []byte // what was written, and is not yet handed over
}

// NewHash returns a Hash that computes of in its goroutine, until Close.
func NewHash(of hash.Hash) *Hash {
	h := &Hash{of: of, free: newBuffers(), full: make(chan []byte, buffers), ended: make(chan struct{})}
	h.now = (<-h.free)[:0]
	go func() {
		defer close(h.ended)
		for data := range h.full {
			h.of.Write(data)
			h.free <- data[:0]
		}
	}()
	return h
}

// Write implements io.Writer. It never fails, and must not be called after Close.
func (h *Hash) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), cap(h.now)-len(h.now))
		h.now, rest = append(h.now, rest[:n]...), rest[n:]
		if len(h.now) == cap(h.now) {
			h.full <- h.now // which has room for all buffers
			h.now = (<-h.free)[:0]
		}
	}
	return len(p), nil
}

// Sum ends the goroutine, and returns the hash of all that was written.
func (h *Hash) Sum() []byte {
	h.Close()
	return h.of.Sum(nil)
}

// Close ends the goroutine, and waits until it has hashed what was written. It may be called again.
func (h *Hash) Close() {
	if h.closed {
		return
	}
	h.closed = true
	h.full <- h.now
	close(h.full)
	<-h.ended
}
