package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Reader reads the events of a file, one after the other. The file need not exist.
type Reader struct {
	path string
	file *os.File // nil as long as there is none
	in   *bufio.Reader
	part []byte // the beginning of a line that is being written
	left bool   // file no longer has the path, so nobody appends to it any more
}

// NewReader returns a reader of the events that are recorded from now on, or with past of all that are
// kept. The caller closes it.
func NewReader(path string, past bool) (*Reader, error) {
	r := &Reader{path: path}
	if past {
		return r, r.next()
	}
	err := r.open(path)
	if err == nil && r.file != nil {
		_, err = r.file.Seek(0, io.SeekEnd)
	}
	return r, err
}

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Next returns the next event. The error is io.EOF if it has not been recorded yet: the caller may
// call Next again later. A line that is damaged is left out.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.line()
		if err == nil {
			var e Event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				return e, nil
			}
			continue
		}
		if !errors.Is(err, io.EOF) {
			return Event{}, err
		}
		switch moved, err := r.moved(); {
		case err != nil:
			return Event{}, err
		case !moved:
			return Event{}, io.EOF
		case r.file != nil && !r.left:
			r.left = true // a last line may have been appended since the end was read
		default:
			if err := r.next(); err != nil {
				return Event{}, err
			}
		}
	}
}

// line returns the next complete line of the open file, or io.EOF.
func (r *Reader) line() ([]byte, error) {
	if r.file == nil {
		return nil, io.EOF
	}
	more, err := r.in.ReadBytes('\n')
	r.part = append(r.part, more...)
	if err != nil {
		return nil, err
	}
	line := r.part
	r.part = nil
	return line, nil
}

// moved reports whether another file has the path than the open one.
func (r *Reader) moved() (bool, error) {
	now, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || r.file == nil {
		return true, err
	}
	info, err := r.file.Stat()
	return err == nil && !os.SameFile(now, info), err
}

// next opens the file after the open one: the old one, unless that is the open one, or else the new one.
func (r *Reader) next() error {
	old, err := os.Stat(r.path + oldSuffix)
	if err == nil && r.file != nil {
		var info fs.FileInfo
		if info, err = r.file.Stat(); err == nil && os.SameFile(old, info) {
			err = fs.ErrNotExist
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r.open(r.path)
	}
	if err != nil {
		return err
	}
	return r.open(r.path + oldSuffix)
}

// open opens a file in place of the open one. A file that does not exist is not an error.
func (r *Reader) open(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = r.Close() // it was only read
	r.file, r.in, r.part, r.left = file, bufio.NewReader(file), nil, false
	return nil
}
