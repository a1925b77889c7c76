package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// An export that is interrupted ends at once, and leaves no file.
func TestAnExportEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	path := filepath.Join(t.TempDir(), "image.aci")
	var x exporter
	err := x.write(ctx, path, "", func(file *os.File) (string, error) {
		cancel(stop)
		for {
			if _, err := file.WriteAt([]byte("x"), 0); err != nil {
				return "", err
			}
		}
	})
	if !errors.Is(err, stop) {
		t.Errorf("%v, want the cause", err)
	}
	if err := x.undo(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is left")
	}
}
