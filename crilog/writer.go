package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults of Options.
const (
	DefaultMaxSize  = 10 << 20
	DefaultMaxFiles = 5
	// minMaxSize is enough for a record that is longer than its header.
	minMaxSize = 1024
)

// Options are the limits of a log. The folder never takes more than MaxSize
// times MaxFiles bytes.
type Options struct {
	// MaxSize bounds the size of each file in bytes; 0 means DefaultMaxSize, and
	// less than 1024 means 1024.
	MaxSize int64
	// MaxFiles is the number of files kept, the one written to included; 0 means
	// DefaultMaxFiles.
	MaxFiles int
	// Logger logs that the log cannot be written; nil means slog.Default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	o.MaxSize = max(o.MaxSize, minMaxSize)
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Writer writes one app's log. It holds two descriptors and a few hundred
// bytes while idle. Its methods may be called by several goroutines at once.
type Writer struct {
	dir  string
	opts Options
	now  func() time.Time

	mu       sync.Mutex // guards all below
	lock     *os.File   // holds the writer's lock; nil when closed
	file     *os.File   // the file written to; nil when it could not be opened
	number   uint64     // of the newest file
	size     int64      // of file
	unusable bool       // file must not be written to any more
	stamp    stamp
	failure
}

// buffers holds *[]byte of bufferSize, in use only while a chunk is written.
var buffers = sync.Pool{ //nolint:gochecknoglobals // sync.Pool is made to be shared
	New: func() any { b := make([]byte, 0, bufferSize); return &b },
}

// bufferSize takes a read of 64 KiB in lines of 41 bytes or more, as records.
const bufferSize = 128 << 10

// Open makes dir if it is missing, takes its writer's lock, and continues the newest file: its size counts towards
// the limit, its end is repaired if a crash tore it, and its lines without a newline are ended. A second writer of
// the same folder is an error. A full disk is not: the Writer keeps trying.
func Open(dir string, opts Options) (*Writer, error) {
	w := &Writer{dir: dir, opts: opts.withDefaults(), now: time.Now}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make log folder: %w", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	w.lock = lock
	if err := w.openNewest(); err != nil {
		if !isDiskError(err) {
			return nil, errors.Join(err, w.Close())
		}
		w.failed(w.now(), err)
	}
	w.EndLines()
	return w, nil
}

// Append writes chunk, which one read of a stream of the app returned: with one
// time for all of it and, as a rule, one write(2). It does not keep chunk. It returns
// no error, because nothing may stop the app. When the log cannot be written, the
// Logger gets one message, and another one with the number of lost bytes when it can be
// written again.
func (w *Writer) Append(s Stream, chunk []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(chunk) == 0 || w.lock == nil {
		return
	}
	now := w.now()
	if !w.ready(now) {
		w.countLost(s, len(chunk))
		return
	}
	kept, err := w.write(now, s, chunk)
	if err != nil {
		w.failed(now, err)
		w.countLost(s, len(chunk)-kept)
		return
	}
	w.recovered()
}

// EndLines ends the lines that have no newline: the processes that wrote them have ended. What is appended next
// begins a line.
func (w *Writer) EndLines() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range []Stream{Stdout, Stderr} {
		now := w.now()
		if w.lock == nil || !w.open[s] || !w.ready(now) {
			continue
		}
		if err := w.endLine(now, s); err != nil {
			w.failed(now, err)
			w.countLost(s, 0)
		}
	}
}

// endLine writes the record that ends a line.
func (w *Writer) endLine(now time.Time, s Stream) error {
	record := w.stamp.endRecord(now, s)
	if w.size+int64(len(record)) > w.opts.MaxSize {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if _, err := writeAt(w.file, record, w.size); err != nil {
		return errors.Join(fmt.Errorf("write log: %w", err), truncate(w.file, w.size))
	}
	w.size += int64(len(record))
	w.open[s] = false
	return nil
}

// Close ends the log: its followers reach its end. It may be called more than
// once.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lock == nil {
		return nil
	}
	err := w.closeFile()
	// Last, so that a follower that finds the lock free also finds every byte.
	err = errors.Join(err, w.lock.Close())
	w.lock = nil
	return err
}

// write formats chunk and writes it, and returns how many bytes of it are in the log.
func (w *Writer) write(now time.Time, s Stream, chunk []byte) (kept int, err error) {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	b := batch{stream: s, header: w.stamp.header(now, s), buf: (*pooled)[:0]}
	if err := w.endCutLine(&b); err != nil {
		return 0, err
	}
	limit := int(min(maxText, w.opts.MaxSize-int64(headerLen)-1))
	for len(chunk) > 0 {
		n, whole := nextText(chunk, limit)
		if err := w.makeRoom(&b, recordLen(n, whole)); err != nil {
			return b.kept, err
		}
		b.add(chunk[:n], whole)
		chunk = chunk[n:]
	}
	err = w.flush(&b)
	return b.kept, err
}

// endCutLine ends the line that has lost its rest, so that the next line is not joined to it.
func (w *Writer) endCutLine(b *batch) error {
	if !w.cut[b.stream] {
		return nil
	}
	if err := w.makeRoom(b, headerLen+1); err != nil {
		return err
	}
	b.add([]byte{'\n'}, true)
	if err := w.flush(b); err != nil {
		return err
	}
	b.kept = 0 // that newline was not the app's
	w.cut[b.stream] = false
	return nil
}

// makeRoom flushes b if it has no room for n more bytes, and rotates if the file has
// none. An empty file takes any record.
func (w *Writer) makeRoom(b *batch, n int) error {
	full := w.size+int64(len(b.buf)+n) > w.opts.MaxSize
	if !full && len(b.buf)+n <= cap(b.buf) {
		return nil
	}
	if err := w.flush(b); err != nil {
		return err
	}
	if full {
		return w.rotate()
	}
	return nil
}

// flush writes the records of b. After a write that ended early, the whole records
// stay in the file and the rest is cut off.
func (w *Writer) flush(b *batch) error {
	if len(b.buf) == 0 {
		return nil
	}
	n, err := writeAt(w.file, b.buf, w.size)
	if err == nil {
		w.size += int64(n)
		w.open[b.stream] = b.open
		b.written()
		return nil
	}
	whole := bytes.LastIndexByte(b.buf[:n], '\n') + 1
	w.size += int64(whole)
	if n > whole {
		if terr := truncate(w.file, w.size); terr != nil {
			w.unusable = true
			err = errors.Join(err, terr)
		}
	}
	if whole > 0 {
		kept, open := payload(b.buf[:whole])
		b.kept += kept
		w.open[b.stream] = open
	}
	return fmt.Errorf("write log: %w", err)
}

// writeAt writes b like File.WriteAt, but after an error it also returns how much it
// had written before.
func writeAt(f *os.File, b []byte, at int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pwrite(int(f.Fd()), b[n:], at+int64(n))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return n, err
		}
		n += max(m, 0)
	}
	return n, nil
}
