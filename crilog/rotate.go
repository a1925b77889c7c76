package crilog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openNewest opens the newest file of the folder to continue it, or makes the first
// one.
func (w *Writer) openNewest() error {
	numbers, err := fileNumbers(w.dir)
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		return w.rotate()
	}
	w.number = numbers[len(numbers)-1]
	f, err := os.OpenFile(fileName(w.dir, w.number), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	size, err := repair(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.size = f, size
	w.open = openLines(f, size)
	return w.removeOld(numbers, w.opts.MaxFiles)
}

// rotate makes a new file and writes to it from now on. The oldest file is removed first, so that the limit holds and a
// full disk gets room; a log of one file has two for a moment. The writer keeps its own file until it has the new one,
// unless a log of one file is on a disk that has no room for two.
func (w *Writer) rotate() error {
	numbers, err := fileNumbers(w.dir)
	if err != nil {
		return err
	}
	if err := w.removeOld(numbers, max(1, w.opts.MaxFiles-1)); err != nil {
		return err
	}
	next := w.number + 1
	if len(numbers) > 0 {
		next = max(next, numbers[len(numbers)-1]+1)
	}
	f, err := w.create(next)
	if w.opts.MaxFiles == 1 && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		f, err = w.createAlone(numbers, next)
	}
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	err = w.closeFile()
	w.file, w.number, w.size, w.unusable = f, next, 0, false
	return errors.Join(err, w.removeOld(numbers, w.opts.MaxFiles-1))
}

// createAlone makes a file in the room of all others. After an error the writer has no file, so that it does not go on
// in one that has been removed.
func (w *Writer) createAlone(numbers []uint64, next uint64) (*os.File, error) {
	if err := errors.Join(w.closeFile(), w.removeOld(numbers, 0)); err != nil {
		return nil, err
	}
	return w.create(next)
}

func (w *Writer) create(number uint64) (*os.File, error) {
	return os.OpenFile(fileName(w.dir, number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
}

// removeOld removes the oldest of the files until keep are left.
func (w *Writer) removeOld(numbers []uint64, keep int) error {
	for ; len(numbers) > keep; numbers = numbers[1:] {
		err := os.Remove(fileName(w.dir, numbers[0]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old log: %w", err)
		}
	}
	return nil
}

func (w *Writer) closeFile() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}
