package crilog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// A follower polls: a user has few inotify instances (128), and polling works on every
// file system. An idle follower makes a dozen system calls each maxPause.
const (
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
)

// pause waits longer each time, until reset.
type pause struct{ next time.Duration }

func (p *pause) reset() { p.next = 0 }

func (p *pause) wait(ctx context.Context) error {
	p.next = min(max(2*p.next, minPause), maxPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.next):
		return nil
	}
}

// waitForFiles lists the log's files; a follower waits for the first.
func (r *reader) waitForFiles(ctx context.Context) ([]uint64, error) {
	var p pause
	for {
		over, err := ended(r.dir)
		if err != nil {
			return nil, err
		}
		numbers, err := fileNumbers(r.dir)
		if err != nil && (!r.opts.Follow || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		if len(numbers) > 0 || over || !r.opts.Follow {
			return numbers, nil
		}
		if err := p.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// follow passes on the records of src until the writer has finished that file, and
// returns the number of the next one, 0 if the log has ended. A log whose folder is removed
// has ended; src, which is open, is read to its end also then.
func (r *reader) follow(ctx context.Context, src *source) (next uint64, err error) {
	var p pause
	for done := false; ; {
		progress, err := r.drain(ctx, src)
		if err != nil || done {
			return next, err
		}
		if progress {
			p.reset()
		}
		// In this order: a log that has ended gets no further file, and a file that has a
		// successor gets no further record. The next drain finds what was written before.
		if done, err = ended(r.dir); err != nil {
			return 0, err
		}
		next, err = r.successor(src.number)
		removed := errors.Is(err, fs.ErrNotExist)
		if err != nil && !removed {
			return 0, err
		}
		if done = done || removed || next != 0; done {
			continue
		}
		if err := r.flush(); err != nil {
			return 0, err
		}
		if err := p.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// successor returns the file to read after the one of that number, 0 for none.
func (r *reader) successor(number uint64) (uint64, error) {
	if !r.opts.Follow && number >= r.last {
		return 0, nil
	}
	if found, err := r.exists(number + 1); err != nil || found {
		return number + 1, err
	}
	numbers, err := fileNumbers(r.dir)
	if err != nil {
		return 0, err
	}
	for _, n := range numbers {
		if n > number && (r.opts.Follow || n <= r.last) {
			return r.earliest(number, n)
		}
	}
	return 0, nil
}

// earliest returns the lowest number above after, up to n, from which all files to n exist: files may be made while
// the folder is listed.
func (r *reader) earliest(after, n uint64) (uint64, error) {
	for n-1 > after {
		found, err := r.exists(n - 1)
		if err != nil {
			return 0, err
		}
		if !found {
			break
		}
		n--
	}
	return n, nil
}

func (r *reader) exists(number uint64) (bool, error) {
	_, err := os.Stat(fileName(r.dir, number))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
