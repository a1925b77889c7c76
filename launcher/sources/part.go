package sources

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/internal/filelock"

	"golang.org/x/sys/unix"
)

// errStalled says that the process that works on a part is slower than the pace that servers must keep.
var errStalled = errors.New("another process downloads too slowly")

// partInterval is how often lockPart looks whether a part is free. It does not wait in flock(2): that takes a thread
// for each import, also for one that was given up.
const partInterval = 50 * time.Millisecond

// lockPart opens the file of a download that may have begun, or an empty one for a layer that is being imported, and
// waits while another process works on it: on this machine, once the file has the size, and else as long as the file
// grows by the pace. Then it returns errStalled.
func (f *Fetcher) lockPart(ctx context.Context, key string, size int64) (*os.File, error) {
	path := f.cached("parts", key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	p := cmp.Or(f.pace, minimumPace())
	for began, from := time.Now(), int64(0); ; {
		file, have, err := tryPart(path)
		if file != nil || err != nil {
			return file, err
		}
		if have == size || have < from || have-from >= p.bytes {
			began, from = time.Now(), have
		}
		if time.Since(began) > p.period {
			return nil, errStalled
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(partInterval):
		}
	}
}

// tryPart opens and locks a part. If another process works on it, it returns no file, but the part's size.
func tryPart(path string) (*os.File, int64, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, 0, err
		}
		err = filelock.Take(file, unix.LOCK_EX|unix.LOCK_NB)
		ours, statErr := file.Stat()
		if statErr == nil && err == nil {
			theirs, pathErr := os.Stat(path)
			if pathErr == nil && os.SameFile(ours, theirs) {
				return file, 0, nil
			}
			_ = file.Close() // the other process was done with it
			continue
		}
		_ = file.Close()
		switch {
		case statErr != nil:
			return nil, 0, statErr
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, ours.Size(), nil
		default:
			return nil, 0, err
		}
	}
}

// removePart removes what lockPart has locked, and unlocks it.
func removePart(file *os.File) {
	_ = os.Remove(file.Name())
	_ = file.Close()
}
