package crilog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// ReadOptions select the records that Read passes on.
type ReadOptions struct {
	// Follow waits for more records until the writer has closed the log or has ended. The
	// folder may be made later.
	Follow bool
	// Tail is the number of lines from the end, those of both streams counted
	// together, and a line without a newline also counted; 0 skips all lines that are
	// there, negative none.
	Tail int
	// Since skips lines that began before it; the zero time skips none.
	Since time.Time
	// Stream selects one stream; 0 means both.
	Stream Stream
	// Flush, unless nil, is called when all records so far have been passed on and
	// before Read returns nil. Its error ends Read.
	Flush func() error
}

// Read passes the records of the log in dir to fn, oldest first, and skips lines that
// are not records. Without Follow it ends where the log ended when Read was called. It
// also ends with an error of fn, and with ctx, and returns that error. A folder that does
// not exist is fs.ErrNotExist, unless it is followed. A follower that is slower than the
// writer misses the files that the writer removes before it comes to them.
// The memory that Read needs does not depend on the size of the log.
func Read(ctx context.Context, dir string, opts ReadOptions, fn func(Entry) error) error {
	r := &reader{dir: dir, opts: opts, fn: fn, buf: make([]byte, bufferSize)}
	numbers, err := r.waitForFiles(ctx)
	if err != nil {
		return err
	}
	if len(numbers) > 0 {
		if err := r.readFiles(ctx, numbers); err != nil {
			return err
		}
	}
	return r.flush()
}

// position is a place in the log.
type position struct {
	file   uint64
	offset int64
}

func (p position) before(q position) bool {
	return p.file < q.file || (p.file == q.file && p.offset < q.offset)
}

// reader is the state of one Read.
type reader struct {
	dir  string
	opts ReadOptions
	fn   func(Entry) error
	buf  []byte
	parser

	last  uint64               // the newest file at the start
	start [Stderr + 1]position // records before it are left out
	line  [Stderr + 1]struct{ inside, skip bool }
}

func (r *reader) flush() error {
	if r.opts.Flush == nil {
		return nil
	}
	return r.opts.Flush()
}

// readFiles passes on the files, from the oldest of numbers to the newest.
func (r *reader) readFiles(ctx context.Context, numbers []uint64) error {
	r.last = numbers[len(numbers)-1]
	end, err := r.end()
	if err != nil {
		return err
	}
	if r.opts.Tail >= 0 {
		if err := r.findTail(numbers, end); err != nil {
			return err
		}
	}
	for number := max(numbers[0], r.first().file); number != 0; {
		if number, err = r.readFile(ctx, number, end); err != nil {
			return err
		}
	}
	return nil
}

// end returns where the log ends now. A follower reads a record that is not whole yet
// later.
func (r *reader) end() (position, error) {
	f, err := os.Open(fileName(r.dir, r.last))
	if errors.Is(err, fs.ErrNotExist) {
		return position{file: r.last}, nil // rotated away since it was listed
	}
	if err != nil {
		return position{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return position{}, err
	}
	b := backwards{f: f, buf: r.buf, start: info.Size()}
	if torn, err := b.endsTorn(); err != nil || !torn || !r.opts.Follow {
		return position{r.last, info.Size()}, err
	}
	_, offset, err := b.previous()
	return position{r.last, offset}, err
}

// readFile passes on the records of one file and returns the number of the next file, 0
// for none.
func (r *reader) readFile(ctx context.Context, number uint64, end position) (next uint64, err error) {
	f, err := os.Open(fileName(r.dir, number))
	if errors.Is(err, fs.ErrNotExist) {
		return r.successor(number)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	src := &source{ReaderAt: f, number: number}
	if first := r.first(); first.file == number {
		src.offset = first.offset
	}
	if !r.opts.Follow && number == end.file {
		src.ReaderAt = io.NewSectionReader(f, 0, end.offset)
	}
	if r.opts.Follow {
		next, err = r.follow(ctx, src)
	} else {
		_, err = r.drain(ctx, src)
	}
	if err != nil {
		return 0, err
	}
	if err := r.torn(src); err != nil || r.opts.Follow {
		return next, err
	}
	return r.successor(number)
}

// first returns where the first wanted record may be.
func (r *reader) first() position {
	if r.start[Stderr].before(r.start[Stdout]) {
		return r.start[Stderr]
	}
	return r.start[Stdout]
}

// source is the file being read.
type source struct {
	io.ReaderAt
	number   uint64
	offset   int64 // of the first byte not passed on yet, the start of a record
	skipping bool  // in a line longer than any record
}

// drain passes on the whole records that src has now, and reports whether there were
// any. The next drain reads the bytes after the last newline again: the writer may be
// writing that record, or may remove it.
func (r *reader) drain(ctx context.Context, src *source) (progress bool, err error) {
	for {
		n, err := src.ReadAt(r.buf, src.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return progress, err
		}
		if err := ctx.Err(); err != nil {
			return progress, err
		}
		end := bytes.LastIndexByte(r.buf[:n], '\n') + 1
		if end == 0 && n < len(r.buf) {
			return progress, nil
		}
		if end == 0 {
			end, src.skipping = n, true
		} else if err := r.records(src, r.buf[:end]); err != nil {
			return progress, err
		}
		src.offset += int64(end)
		progress = true
	}
}

// records passes on the records in data, which ends in a newline.
func (r *reader) records(src *source, data []byte) error {
	offset := src.offset
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n')
		if src.skipping {
			src.skipping = false
		} else if err := r.record(data[:n], position{src.number, offset}, false); err != nil {
			return err
		}
		data = data[n+1:]
		offset += int64(n + 1)
	}
	return nil
}

// torn passes on the part of src's last record that a crash left.
func (r *reader) torn(src *source) error {
	n, err := src.ReadAt(r.buf, src.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if src.skipping || n == 0 || bytes.IndexByte(r.buf[:n], '\n') >= 0 {
		return nil
	}
	return r.record(r.buf[:n], position{src.number, src.offset}, true)
}

// record passes on one record if it is wanted.
func (r *reader) record(line []byte, at position, torn bool) error {
	e, ok := r.parse(line, torn)
	if !ok || (r.opts.Stream != 0 && e.Stream != r.opts.Stream) || at.before(r.start[e.Stream]) {
		return nil
	}
	l := &r.line[e.Stream]
	if !l.inside {
		l.skip = e.Time.Before(r.opts.Since)
	}
	l.inside = e.Partial
	if l.skip {
		return nil
	}
	return r.fn(e)
}
