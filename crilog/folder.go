package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/internal/filelock"

	"golang.org/x/sys/unix"
)

const (
	lockName   = "lock"
	fileSuffix = ".log"
)

func fileName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", number, fileSuffix))
}

// fileNumbers lists the log files in dir, oldest first. It passes over files of other
// names.
func fileNumbers(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list log files: %w", err)
	}
	var numbers []uint64
	for _, e := range entries {
		if n, ok := parseFileName(e.Name()); ok && e.Type().IsRegular() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func parseFileName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(digits) < 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && filepath.Base(fileName("", n)) == name
}

// lockFolder takes the writer's lock of dir; closing the file releases it.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	if f := newLock(dir, path); f != nil {
		return f, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open lock of log: %w", err)
	}
	held, err := filelock.Hold(f)
	if err == nil && !held {
		err = errors.New("another writer is using it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock log %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// newLock makes the lock file at path, which has its name only when it is locked: a follower that found
// a new one unlocked would take the log for ended. It returns nil if there is a lock file, or if the
// file system has no files without names.
func newLock(dir, path string) *os.File {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o640)
	if err != nil {
		return nil
	}
	if _, err = filelock.Hold(f); err == nil { // nobody else has it open
		// open(2) has this way to give a name to such a file.
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		_ = f.Close() // without a name the file is gone
		return nil
	}
	return f
}

// ended reports whether dir had a writer and has none now.
func ended(dir string) (bool, error) {
	held, err := IsHeld(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !held, err
}

// IsHeld reports whether a writer has the log in dir, as an app's does until the app has ended for good. The error is
// fs.ErrNotExist where there was no writer yet. It only queries the writer's lock and never takes it, so that no reader
// prevents a writer from starting.
func IsHeld(dir string) (bool, error) {
	return filelock.IsHeld(filepath.Join(dir, lockName))
}

// repair makes a file end with a whole record and returns its size. A record that a
// crash cut off becomes a partial one if its header is whole, so that every byte of the
// app's that reached the disk is kept; otherwise the record is removed.
func repair(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("repair log: %w", err)
	}
	size := info.Size()
	from := max(0, size-maxRecord)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil {
		return 0, fmt.Errorf("repair log: %w", err)
	}
	start := bytes.LastIndexByte(tail, '\n') + 1
	torn := tail[start:]
	if len(torn) == 0 {
		return size, nil
	}
	at := from + int64(start)
	if !tornRecord(torn) {
		return at, truncate(f, at)
	}
	if _, err := f.WriteAt([]byte{'P'}, at+int64(tagAt)); err != nil {
		return 0, errors.Join(fmt.Errorf("repair log: %w", err), truncate(f, at))
	}
	if _, err := f.WriteAt([]byte{'\n'}, size); err != nil {
		return at, truncate(f, at) // a full disk: the rest of the log matters more
	}
	return size + 1, nil
}

// openLines reports which streams have a last record that is partial, in the end of a file of whole records. A file
// that cannot be read has none.
func openLines(f *os.File, size int64) (open [Stderr + 1]bool) {
	tail := make([]byte, min(size, 2*maxRecord))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return open
	}
	var p parser
	for line := range bytes.Lines(tail) {
		if e, ok := p.parse(bytes.TrimSuffix(line, []byte("\n")), false); ok {
			open[e.Stream] = e.Partial
		}
	}
	return open
}

// tornRecord reports whether b starts with a whole header of the writer's own form.
func tornRecord(b []byte) bool {
	if len(b) < headerLen || b[headerLen-1] != ' ' || b[tagAt-1] != ' ' {
		return false
	}
	e, ok := new(parser).parse(b[:headerLen], true)
	return ok && len(e.Text) == 0
}

func truncate(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("cut torn record off log: %w", err)
	}
	return nil
}
