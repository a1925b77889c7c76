package crilog

import "bytes"

// batch is records of one stream and one time on their way to the file.
type batch struct {
	stream Stream
	header [headerLen]byte
	buf    []byte // never grows: its capacity is the pool's
	text   int    // the app's bytes in buf
	open   bool   // the last record is partial
	kept   int    // the app's bytes that are in the log
}

// add appends the record of text, which ends in a newline if it is whole.
func (b *batch) add(text []byte, whole bool) {
	at := len(b.buf)
	b.buf = append(b.buf, b.header[:]...)
	b.buf = append(b.buf, text...)
	if !whole {
		b.buf[at+tagAt] = 'P'
		b.buf = append(b.buf, '\n')
	}
	b.text += len(text)
	b.open = !whole
}

// written empties the batch after all of it has been written.
func (b *batch) written() {
	b.kept += b.text
	b.buf, b.text = b.buf[:0], 0
}

// nextText returns the length of the next record's text in chunk: a line with its
// newline, or the part of a line that chunk holds, at most limit bytes.
func nextText(chunk []byte, limit int) (n int, whole bool) {
	if i := bytes.IndexByte(chunk[:min(len(chunk), limit+1)], '\n'); i >= 0 {
		return i + 1, true
	}
	return min(len(chunk), limit), false
}

// recordLen is the size of the record that add makes of n bytes.
func recordLen(n int, whole bool) int {
	if whole {
		return headerLen + n
	}
	return headerLen + n + 1
}

// payload counts the app's bytes in whole records that add made, and reports
// whether the last one is partial.
func payload(records []byte) (n int, open bool) {
	for len(records) > 0 {
		end := bytes.IndexByte(records[headerLen:], '\n') + headerLen
		n += end - headerLen
		if open = records[tagAt] == 'P'; !open {
			n++
		}
		records = records[end+1:]
	}
	return n, open
}
