package crilog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// tail counts lines backwards from the end of a log. A line is all partial records of its
// stream up to the next full one, and records of the other stream may lie between, so
// each stream gets a start of its own.
type tail struct {
	left    int // lines still wanted
	streams [Stderr + 1]struct {
		seen  bool // a later record of the stream
		begin bool // wanted: where the line at hand began
	}
	start [Stderr + 1]position
}

// see takes the record before those that it has seen, and reports whether it needs no more.
func (t *tail) see(e Entry, at position) (done bool) {
	s := &t.streams[e.Stream]
	if endsLine := !e.Partial || !s.seen; endsLine {
		s.begin = t.left > 0
		if s.begin {
			t.left--
		}
	}
	s.seen = true
	if s.begin {
		t.start[e.Stream] = at
	}
	return t.left == 0 && !t.streams[Stdout].begin && !t.streams[Stderr].begin
}

// findTail finds where the wanted lines of each stream start.
func (r *reader) findTail(numbers []uint64, end position) error {
	t := tail{left: r.opts.Tail, start: [Stderr + 1]position{end, end, end}}
	for i := len(numbers) - 1; i >= 0 && r.opts.Tail > 0; i-- {
		done, err := r.tailOf(&t, numbers[i], end)
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	r.start = t.start
	if s := r.opts.Stream; s != 0 {
		r.start[Stdout+Stderr-s] = r.start[s] // so that the reader does not start earlier for the other stream
	}
	return nil
}

// tailOf passes the records of one file to t, the last one first.
func (r *reader) tailOf(t *tail, number uint64, end position) (done bool, err error) {
	f, err := os.Open(fileName(r.dir, number))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // the writer has removed it and those before it
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	size := end.offset
	if number != end.file {
		info, err := f.Stat()
		if err != nil {
			return false, err
		}
		size = info.Size()
	}
	b := backwards{f: f, buf: r.buf, start: size}
	torn, err := b.endsTorn()
	if err != nil {
		return false, err
	}
	for !done {
		line, offset, err := b.previous()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if e, ok := r.parse(line, torn); ok && (r.opts.Stream == 0 || e.Stream == r.opts.Stream) {
			done = t.see(e, position{number, offset})
		}
		torn = false
	}
	return true, nil
}

// backwards reads the lines of a file from its end, in constant memory.
type backwards struct {
	f     *os.File
	buf   []byte
	start int64 // offset in f of buf[0]
	n     int   // bytes of buf not returned yet; the last is a newline
	long  bool  // the line at hand is longer than buf
}

// endsTorn reports whether the file lacks its last newline, and if so puts one into buf.
func (b *backwards) endsTorn() (bool, error) {
	if b.start == 0 {
		return false, nil
	}
	if _, err := b.f.ReadAt(b.buf[:1], b.start-1); err != nil {
		return false, err
	}
	if b.buf[0] == '\n' {
		return false, nil
	}
	b.buf[0], b.n = '\n', 1
	return true, nil
}

// previous returns the line before the last one returned, without its
// newline, and its offset; io.EOF when there is none. A line longer than the buffer comes
// back empty.
func (b *backwards) previous() ([]byte, int64, error) {
	for {
		if b.n > 0 {
			i := bytes.LastIndexByte(b.buf[:b.n-1], '\n')
			if i >= 0 || b.start == 0 {
				line := b.buf[i+1 : b.n-1]
				if b.long {
					line, b.long = nil, false
				}
				b.n = i + 1
				return line, b.start + int64(i) + 1, nil
			}
		}
		if b.start == 0 {
			return nil, 0, io.EOF
		}
		if err := b.load(); err != nil {
			return nil, 0, err
		}
	}
}

// load puts the bytes before start into the buffer.
func (b *backwards) load() error {
	if b.n == len(b.buf) {
		b.buf[0], b.n, b.long = '\n', 1, true
	}
	more := int(min(b.start, 32<<10, int64(len(b.buf)-b.n)))
	copy(b.buf[more:], b.buf[:b.n])
	if _, err := b.f.ReadAt(b.buf[:more], b.start-int64(more)); err != nil {
		return err
	}
	b.start -= int64(more)
	b.n += more
	return nil
}
