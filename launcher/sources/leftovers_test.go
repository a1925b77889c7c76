package sources

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What imports that were killed have left in the cache goes, but not while an import runs.
func TestLeftoversOfKilledImportsAreRemoved(t *testing.T) {
	f := newFetcher(t)
	if n, err := RemoveLeftovers(f.Cache + "/none"); n != 0 || err != nil {
		t.Errorf("without a cache: %d, %v", n, err)
	}
	release, err := f.useCache()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".archive-1/blobs", ".import-2", "parts", "refs"} {
		if err := os.MkdirAll(filepath.Join(f.Cache, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".archive-1/blobs/x", ".import-2/image.aci", "parts/old", "parts/new", "refs/x"} {
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
	if n, err := Leftovers(f.Cache, nil); n != 3 || err != nil {
		t.Errorf("found %d, %v", n, err)
	}
	if n, err := RemoveLeftovers(f.Cache); n != 3 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	left, err := filepath.Glob(filepath.Join(f.Cache, "*/*"))
	hidden, hiddenErr := filepath.Glob(filepath.Join(f.Cache, ".*"))
	if err := errors.Join(err, hiddenErr); err != nil || len(left) != 2 || len(hidden) != 0 {
		t.Errorf("left: %v %v, %v", left, hidden, err)
	}
}
