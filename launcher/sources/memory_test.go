package sources

import (
	"bytes"
	"io"
	"testing"

	"golang.org/x/sync/semaphore"
)

// A layer whose file chooses how much memory its decoder takes is converted alone, wherever its file was read to.
func TestALayerIsWeighedByItsFile(t *testing.T) {
	for start, alone := range map[string]bool{"\x28\xb5\x2f\xfd more": true, "\xfd7zXZ\x00 more": true, "\x1f\x8b more": false} {
		m := NewMemory()
		file := bytes.NewReader([]byte(start))
		if _, err := file.Seek(0, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		release, err := m.layer(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		if free(m.layers) == alone {
			t.Errorf("%q: another layer may be converted at once: %v", start, !alone)
		}
		if text, err := io.ReadAll(file); string(text) != start || err != nil {
			t.Errorf("%q: the file is at %q, %v", start, text, err)
		}
		release()
		if !free(m.layers) {
			t.Errorf("%q: its memory stays taken", start)
		}
	}
}

// free reports whether a small layer may be converted now.
func free(layers *semaphore.Weighted) bool {
	if !layers.TryAcquire(smallDecoder) {
		return false
	}
	layers.Release(smallDecoder)
	return true
}
