// Package crilog keeps the output of one app on disk in the CRI log format and
// reads it back byte for byte.
//
// A log is a folder. Its files are named by a number that only grows,
// "0000000001.log" and so on; the highest is the one written to, a rotation
// creates the next and removes the oldest, and nothing is ever renamed. The file
// "lock" carries the writer's lock (fcntl(2), open file description lock), by which a
// follower sees whether the log can still grow, even after the writer was killed.
//
// A file holds records, one per line:
//
//	2026-11-21T03:16:40.000000000Z stdout F text
//	time (UTC, nine digits)        stream tag text, then a newline
//
// F says that the app wrote a newline after the text, P that it did not:
// the next record of the same stream continues the line. (Kubernetes, CRI
// logging design.) The text is the app's, any byte but a newline.
//
// When the processes that wrote a line have ended without a newline, a record ends it, for the format's readers, and
// adds nothing to what the app wrote: an F without text. Its time has the offset +00:00 in place of Z, which no other
// reader tells apart.
package crilog

import (
	"bytes"
	"slices"
	"time"
)

// Stream is one of an app's two output streams.
type Stream uint8

// The streams. The zero Stream is neither; as a selection it means both.
const (
	Stdout Stream = 1 + iota
	Stderr
)

// String is the stream's name in a record, "" for neither.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	}
	return ""
}

// Entry is one record as read back.
type Entry struct {
	Time   time.Time // when the writer got it, UTC
	Stream Stream
	// Partial says that no newline followed Text, and that the stream's next entry continues the line.
	Partial bool
	// Text is without the newline. It is valid until the callback returns.
	Text []byte
	// Ended says that the line ended without a newline. Text is empty.
	Ended bool
}

const (
	stampLen  = len("2006-01-02T15:04:05.000000000Z")
	headerLen = stampLen + len(" stdout F ")
	tagAt     = headerLen - 2
	// endOffset marks a record that ends a line without a newline.
	endOffset = "+00:00"
	// maxText is the longest text of one record that the writer makes, in bytes.
	maxText = 64 << 10
	// maxRecord is the longest record the reader takes, newline included.
	// It leaves room for headers that others write.
	maxRecord = maxText + 1024
)

// stamp formats the times of records. Formatting a whole date costs more than
// everything else in a short record, so the second is kept.
type stamp struct {
	second int64
	text   [stampLen]byte
	valid  bool
}

// header returns the header of a full record. Changing the byte at tagAt to P
// makes it a partial one.
func (t *stamp) header(now time.Time, s Stream) (h [headerLen]byte) {
	if sec := now.Unix(); sec != t.second || !t.valid {
		now.UTC().AppendFormat(t.text[:0], "2006-01-02T15:04:05.000000000Z")
		t.second, t.valid = sec, true
	}
	ns := now.Nanosecond()
	for i := stampLen - 2; i > stampLen-11; i-- {
		t.text[i] = byte('0' + ns%10)
		ns /= 10
	}
	copy(h[:], t.text[:])
	copy(h[stampLen:], " stdout F ")
	if s == Stderr {
		copy(h[stampLen+1:], "stderr")
	}
	return h
}

// endRecord returns the record that ends a line of the stream without a newline.
func (t *stamp) endRecord(now time.Time, s Stream) []byte {
	header := t.header(now, s)
	record := slices.Concat(header[:stampLen-1], []byte(endOffset), header[stampLen:])
	return append(record, '\n')
}

// parser reads records. It remembers the last time it parsed, because all
// records of one read carry the same.
type parser struct {
	text [64]byte
	n    int
	time time.Time
}

// parse reads one record, without its newline. A torn record is one whose newline
// never reached the disk, so it is partial. parse returns false for a line that is
// not a record.
func (p *parser) parse(line []byte, torn bool) (Entry, bool) {
	when, rest, ok := cut(line)
	if !ok {
		return Entry{}, false
	}
	name, rest, ok := cut(rest)
	if !ok {
		return Entry{}, false
	}
	e := Entry{Stream: streamOf(name)}
	tag, text, ok := cut(rest)
	if !ok || e.Stream == 0 || len(tag) == 0 {
		return Entry{}, false
	}
	// The tag is a list separated by colons; only its first part is defined.
	if (tag[0] != 'F' && tag[0] != 'P') || (len(tag) > 1 && tag[1] != ':') {
		return Entry{}, false
	}
	e.Partial = tag[0] == 'P' || torn
	e.Text = text
	e.Ended = !e.Partial && len(text) == 0 && bytes.HasSuffix(when, []byte(endOffset))
	e.Time, ok = p.when(when)
	return e, ok
}

// when parses a time, unless it is the one parsed last.
func (p *parser) when(text []byte) (time.Time, bool) {
	if p.n > 0 && bytes.Equal(text, p.text[:p.n]) {
		return p.time, true
	}
	if len(text) > len(p.text) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}, false
	}
	p.n, p.time = copy(p.text[:], text), t.UTC()
	return p.time, true
}

func cut(b []byte) (before, after []byte, found bool) {
	i := bytes.IndexByte(b, ' ')
	if i < 0 {
		return nil, nil, false
	}
	return b[:i], b[i+1:], true
}

func streamOf(name []byte) Stream {
	switch string(name) {
	case "stdout":
		return Stdout
	case "stderr":
		return Stderr
	}
	return 0
}
