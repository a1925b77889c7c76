package sources

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kurma.io/stager/launcher/images"
)

// What imports that were killed have left in the cache goes, but not while an import runs.
func TestLeftoversOfKilledImportsAreRemoved(t *testing.T) {
	f := newFetcher(t)
	f.Cache = filepath.Join(t.TempDir(), "[cache]") // not a pattern
	if n, err := RemoveLeftovers(f.Cache + "/none"); n != 0 || err != nil {
		t.Errorf("without a cache: %d, %v", n, err)
	}
	release, err := f.useCache()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".archive-1/blobs", ".import-2", "parts", "refs", "layers"} {
		if err := os.MkdirAll(filepath.Join(f.Cache, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".archive-1/blobs/x", ".import-2/image.aci", "parts/old", "parts/new", "refs/x", "refs/x.new-1", "layers/x.new-2"} {
		if err := os.WriteFile(filepath.Join(f.Cache, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-partAge - time.Hour)
	if err := os.Chtimes(filepath.Join(f.Cache, "parts/old"), before, before); err != nil {
		t.Fatal(err)
	}
	if n, err := RemoveLeftovers(f.Cache); n != 0 || err != nil {
		t.Errorf("while an import runs: %d, %v", n, err)
	}
	release()
	if n, err := Leftovers(f.Cache, nil); n != 5 || err != nil {
		t.Errorf("found %d, %v", n, err)
	}
	if n, err := RemoveLeftovers(f.Cache); n != 5 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	left, err := fs.Glob(os.DirFS(f.Cache), "*/*")
	hidden, hiddenErr := fs.Glob(os.DirFS(f.Cache), ".*-*")
	if err := errors.Join(err, hiddenErr); err != nil || len(left) != 2 || len(hidden) != 0 {
		t.Errorf("left: %v %v, %v", left, hidden, err)
	}
}

// The cache notes only images that the store has: an import removes the other notes.
func TestNotesOfImagesThatAreGoneAreRemoved(t *testing.T) {
	f := newFetcher(t)
	f.Cache = filepath.Join(t.TempDir(), "[cache]") // not a pattern
	importSized := func(size int) (path string) {
		path = filepath.Join(t.TempDir(), "image.aci")
		if err := os.WriteFile(path, aci(t, size), 0o600); err != nil {
			t.Fatal(err)
		}
		image, err := f.Import(t.Context(), path)
		if err == nil {
			err = f.remember("layers", path, image)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	importSized(1)
	if _, err := f.Store.Remove(t.Context(), func(all []*images.Image, _ images.Imports) ([]*images.Image, error) { return all, nil }); err != nil {
		t.Fatal(err)
	}
	written := f.cached("refs", "of another import") + ".new-1" // and not yet renamed
	if err := os.WriteFile(written, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{importSized(2), importSized(3)}
	if err := os.Remove(written); err != nil {
		t.Errorf("note that another import writes: %v", err)
	}
	for _, path := range paths {
		if f.Known(path) == nil || f.known("layers", path) == nil {
			t.Errorf("%s is not known", path)
		}
	}
	for _, kind := range []string{"refs", "layers"} {
		if left, err := fs.Glob(os.DirFS(f.Cache), kind+"/*"); err != nil || len(left) != len(paths) {
			t.Errorf("%s: %v, %v", kind, left, err)
		}
	}
}
