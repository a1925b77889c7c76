package sources

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/launcher/images"

	"golang.org/x/sys/unix"
)

// partAge is how long the part of a download is kept for a command that goes on with it.
const partAge = 7 * 24 * time.Hour

// useCache keeps the temporary files in the cache from Leftovers, until release is called.
func (f *Fetcher) useCache() (release func(), err error) {
	if err := os.MkdirAll(f.Cache, 0o700); err != nil {
		return nil, err
	}
	dir, err := images.LockFolder(f.Cache, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return func() { _ = dir.Close() }, nil
}

// forgetGone removes what the cache notes of images that the store does not have any more, as far as it can. Another
// import may be writing a note: a replacement, whose name has a dot, is not whole yet, see jsonfile.Replace.
func (f *Fetcher) forgetGone() {
	for _, kind := range []string{"refs", "layers", "blobs"} {
		for _, note := range inCache(f.Cache, kind+"/*") {
			if id, err := os.ReadFile(note); err == nil && filepath.Ext(note) == "" && !f.Store.Has(string(id)) {
				_ = os.Remove(note)
			}
		}
	}
}

// inCache returns the paths that match a pattern below the cache, as far as its folders can be read. The path of the
// cache itself may have a pattern's characters.
func inCache(cache, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(cache), pattern)
	for i, name := range found {
		found[i] = filepath.Join(cache, name)
	}
	return found
}

// Leftovers calls remove, unless it is nil, for the path of each file and folder in a cache that imports which were
// killed have left, and for parts of downloads that nobody has gone on with for a week. It returns their number. While
// an import runs there are none.
func Leftovers(cache string, remove func(path string) error) (int, error) {
	dir, err := images.LockFolder(cache, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	left := append(inCache(cache, ".*-*"), inCache(cache, "*/*.new-*")...) // see jsonfile.Replace
	for _, part := range inCache(cache, "parts/*") {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > partAge {
			left = append(left, part)
		}
	}
	if remove == nil {
		return len(left), nil
	}
	var errs []error
	for _, path := range left {
		errs = append(errs, remove(path))
	}
	return len(left), errors.Join(errs...)
}

// RemoveLeftovers removes what Leftovers finds, and returns its number.
func RemoveLeftovers(cache string) (int, error) { return Leftovers(cache, rmtree.Remove) }
