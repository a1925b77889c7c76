package crilog

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retryAfter is the time between attempts to write to a full disk: one for every
	// line would slow the app.
	retryAfter = 100 * time.Millisecond
	// roomToResume is reserved on the disk before the log is written again. If the disk has
	// a few free bytes only, the next lines would fail again, each with its own message.
	roomToResume = 64 << 10
)

// failure is the state of a log that cannot be written.
type failure struct {
	failing bool
	lost    int64     // number of the app's bytes, since it failed
	retry   time.Time // of the next attempt
	// open: the last record of the stream was partial. cut: the bytes that
	// followed it were also lost.
	open, cut [Stderr + 1]bool
}

// isDiskError reports whether err may go away without the writer's doing.
func isDiskError(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failed records that the log could not be written, and logs it the first time.
func (w *Writer) failed(now time.Time, err error) {
	w.retry = now.Add(retryAfter)
	// Neither error goes away in the same file.
	if errors.Is(err, unix.EFBIG) || errors.Is(err, unix.EIO) {
		w.unusable = true
	}
	if w.failing {
		return
	}
	w.failing = true
	w.opts.Logger.Error("log cannot be written, output is lost until it can", "log", w.dir, "error", err)
}

// countLost counts bytes that did not get into the log.
func (f *failure) countLost(s Stream, n int) {
	f.lost += int64(n)
	f.cut[s] = f.cut[s] || f.open[s]
	f.open[s] = false
}

// ready reports whether a write should be attempted.
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

// makeReady opens a file, if the present one cannot be used, and reserves room in it.
func (w *Writer) makeReady() error {
	// An empty file is as good as a new one, and each new one would
	// push an old one out.
	if w.unusable && w.size > 0 {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if w.file == nil {
		if err := w.openNewest(); err != nil {
			return err
		}
	}
	room := min(roomToResume, w.opts.MaxSize-w.size)
	if room <= 0 {
		return nil
	}
	err := unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, w.size, room)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// recovered ends the failure, if there was one.
func (w *Writer) recovered() {
	if !w.failing {
		return
	}
	w.opts.Logger.Warn("log is written again", "log", w.dir, "lostBytes", w.lost)
	w.failing, w.lost = false, 0
}
