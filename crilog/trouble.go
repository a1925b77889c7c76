package crilog

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retryAfter spares a full disk, and the app, an attempt for every line.
	retryAfter = 100 * time.Millisecond
	// roomToGoOn is asked of the disk before the log goes on. A few bytes in the last block
	// are no end of the trouble: it would be said again with every other line.
	roomToGoOn = 64 << 10
)

// trouble is the state of a log that cannot be written.
type trouble struct {
	failing bool
	lost    int64     // of the app's bytes, since it failed
	retry   time.Time // no attempt before
	// open: the last record of the stream was partial. cut: and what
	// followed it was lost.
	open, cut [Stderr + 1]bool
}

// diskTrouble reports whether err can pass by itself.
func diskTrouble(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failed notes that the log could not be written and says so the first time.
func (w *Writer) failed(now time.Time, err error) {
	w.retry = now.Add(retryAfter)
	// Neither passes in the file where it arose.
	if errors.Is(err, unix.EFBIG) || errors.Is(err, unix.EIO) {
		w.spent = true
	}
	if w.failing {
		return
	}
	w.failing = true
	w.opts.Logger.Error("log cannot be written, output is lost until it can", "log", w.dir, "error", err)
}

// lose counts bytes that are not in the log.
func (w *Writer) lose(s Stream, n int) {
	w.lost += int64(n)
	w.cut[s] = w.cut[s] || w.open[s]
	w.open[s] = false
}

// ready reports whether a write is worth an attempt.
func (w *Writer) ready(now time.Time) bool {
	if !w.failing {
		return true
	}
	if now.Before(w.retry) {
		return false
	}
	if err := w.makeReady(); err != nil {
		w.failed(now, err)
		return false
	}
	return true
}

// makeReady opens a file where there is none that can be used and reserves room in it.
func (w *Writer) makeReady() error {
	// An empty file is as good as a new one, and a new one each time would
	// push the old ones out.
	if w.spent && w.size > 0 {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if w.file == nil {
		if err := w.openNewest(); err != nil {
			return err
		}
	}
	room := min(roomToGoOn, w.opts.MaxSize-w.size)
	if room <= 0 {
		return nil
	}
	err := unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, w.size, room)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// recovered ends the trouble, if there was one.
func (w *Writer) recovered() {
	if !w.failing {
		return
	}
	w.opts.Logger.Warn("log is written again", "log", w.dir, "lostBytes", w.lost)
	w.failing, w.lost = false, 0
}
