package events

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Lines reads the lines of a file that grows, one after the other. The file need not exist. When it is full, its
// writer gives it the name with ".old" added, in place of the one before, and begins a new one. Names are resolved
// inside of a folder.
type Lines struct {
	dir  *os.Root
	name string
	file *os.File // nil as long as there is none
	in   *bufio.Reader
	part []byte // the beginning of a line that is being written
	left bool   // file no longer has the name, so nobody appends to it any more
}

// NewLines returns a reader of the lines that are written from now on, or with past of all that are
// kept. Close closes the folder, too.
func NewLines(dir *os.Root, name string, past bool) (*Lines, error) {
	l := &Lines{dir: dir, name: name}
	if past {
		return l, l.next()
	}
	err := l.open(name)
	if err == nil && l.file == nil { // its writer has renamed it, and has not begun the next one
		err = l.open(name + oldSuffix)
	}
	if err == nil && l.file != nil {
		_, err = l.file.Seek(0, io.SeekEnd)
	}
	return l, err
}

// Close closes file and folder.
func (l *Lines) Close() error {
	if l.file != nil {
		_ = l.file.Close() // it was only read
	}
	return l.dir.Close()
}

// Next returns the next line. The error is io.EOF if it has not been written yet: the caller may
// call Next again later.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, err := l.line()
		if !errors.Is(err, io.EOF) {
			return line, err
		}
		switch moved, err := l.moved(); {
		case err != nil:
			return nil, err
		case !moved:
			return nil, io.EOF
		case l.file != nil && !l.left:
			l.left = true // a last line may have been appended since the end was read
		default:
			if err := l.next(); err != nil {
				return nil, err
			}
		}
	}
}

// line returns the next complete line of the open file, or io.EOF.
func (l *Lines) line() ([]byte, error) {
	if l.file == nil {
		return nil, io.EOF
	}
	more, err := l.in.ReadBytes('\n')
	l.part = append(l.part, more...)
	if err != nil {
		return nil, err
	}
	line := l.part
	l.part = nil
	return line, nil
}

// moved reports whether another file has the name than the open one.
func (l *Lines) moved() (bool, error) {
	now, err := l.dir.Stat(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || l.file == nil {
		return true, err
	}
	info, err := l.file.Stat()
	return err == nil && !os.SameFile(now, info), err
}

// next opens the file after the open file: FILE.old, or FILE if FILE.old is the open file or missing.
func (l *Lines) next() error {
	old, err := l.dir.Stat(l.name + oldSuffix)
	if err == nil && l.file != nil {
		var info fs.FileInfo
		if info, err = l.file.Stat(); err == nil && os.SameFile(old, info) {
			err = fs.ErrNotExist
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return l.open(l.name)
	}
	if err != nil {
		return err
	}
	return l.open(l.name + oldSuffix)
}

// open opens a file in place of the open one. A file that does not exist is not an error.
func (l *Lines) open(name string) error {
	file, err := l.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close() // it was only read
	}
	l.file, l.in, l.part, l.left = file, bufio.NewReader(file), nil, false
	return nil
}
