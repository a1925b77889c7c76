package unionfstest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestShapesOfAMissingDirectoryAreAnError(t *testing.T) {
	shapes, err := shapesBelow(filepath.Join(t.TempDir(), "missing"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v", shapes, err)
	}
}
