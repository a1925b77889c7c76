package crilog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// File writes one app's log into one file that belongs to another program. The program removes the file, or renames it
// and makes a new file at the path; the log continues there. Several goroutines may call the methods at once.
type File struct {
	path   string
	logger *slog.Logger

	mu    sync.Mutex // guards all below
	file  *os.File   // nil when closed
	stamp stamp
	failure
}

// OpenFile opens the regular file at path, or makes it. It refuses anything else there, also later, when other programs
// make the files: an app that has the folder as a volume may have the log neither follow a symbolic link, nor wait for
// a pipe's reader, nor open a device that the app may not.
func OpenFile(path string, logger *slog.Logger) (*File, error) {
	file, err := openForAppend(path)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &File{path: path, logger: logger, file: file}, nil
}

func openForAppend(path string) (*os.File, error) {
	const write = unix.O_WRONLY | unix.O_APPEND
	file, err := os.OpenFile(path, write|os.O_CREATE|os.O_EXCL, 0o640)
	if !errors.Is(err, fs.ErrExist) {
		return file, err
	}
	// Looked at before it is opened, which has effects: of a watchdog's device, say.
	found, err := openAt(path, path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	const soon = unix.O_NONBLOCK // a lease delays no open (fcntl(2))
	return openAt(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), path, write|soon)
}

// openAt opens where, as a file with another name.
func openAt(where, name string, flags int) (*os.File, error) {
	fd, err := unix.Open(where, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Append writes chunk as Writer.Append does. A chunk that cannot be written whole is lost.
func (f *File) Append(s Stream, chunk []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(chunk) == 0 || f.file == nil {
		return
	}
	f.followPath()
	err := f.write(s, chunk)
	if err != nil {
		f.countLost(s, len(chunk))
	}
	if err != nil && !f.failing {
		f.logger.Error("log cannot be written, output is lost until it can", "log", f.path, "error", err)
	}
	if err == nil && f.failing {
		f.logger.Warn("log is written again", "log", f.path, "lost", f.lost)
		f.lost = 0
	}
	f.failing = err != nil
}

// EndLines ends lines as Writer.EndLines does.
func (f *File) EndLines() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range []Stream{Stdout, Stderr} {
		if f.file == nil || !f.open[s] {
			continue
		}
		f.followPath()
		before, err := f.file.Stat()
		if err == nil {
			if _, err = f.file.Write(f.stamp.endRecord(time.Now(), s)); err != nil {
				_ = f.file.Truncate(before.Size())
			}
		}
		if err != nil {
			f.countLost(s, 0)
		}
		f.open[s] = false
	}
}

// followPath continues in the file that is now at the path, if it is another one.
func (f *File) followPath() {
	now, err := os.Lstat(f.path)
	if err != nil {
		return // the other program has not made the new file yet
	}
	if have, err := f.file.Stat(); err == nil && os.SameFile(now, have) {
		return
	}
	next, err := openForAppend(f.path)
	if err != nil {
		return
	}
	_ = f.file.Close() // every byte has been written
	f.file = next
}

// write writes the records of a chunk, and takes them back after an error.
func (f *File) write(s Stream, chunk []byte) error {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	before, err := f.file.Stat()
	if err != nil {
		return err
	}
	b := batch{stream: s, header: f.stamp.header(time.Now(), s), buf: (*pooled)[:0]}
	if f.cut[s] {
		b.add([]byte{'\n'}, true) // the next line is not joined to the one that has lost its rest
	}
	for len(chunk) > 0 {
		n, whole := nextText(chunk, maxText)
		if len(b.buf)+recordLen(n, whole) > cap(b.buf) {
			if _, err := f.file.Write(b.buf); err != nil {
				return errors.Join(err, f.file.Truncate(before.Size()))
			}
			b.written()
		}
		b.add(chunk[:n], whole)
		chunk = chunk[n:]
	}
	if _, err := f.file.Write(b.buf); err != nil {
		return errors.Join(err, f.file.Truncate(before.Size()))
	}
	f.cut[s], f.open[s] = false, b.open
	return nil
}

// Close ends the log. It may be called more than once.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
