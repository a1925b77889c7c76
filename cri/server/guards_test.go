package server

import (
	"bytes"
	"testing"
)

// ExecSync keeps the beginning of an output, whole, and takes the rest.
func TestABoundedOutputIsItsBeginning(t *testing.T) {
	var b bounded
	for _, text := range [][]byte{bytes.Repeat([]byte("a"), maxOutput-2), []byte("bcd"), []byte("e")} {
		if n, err := b.Write(text); n != len(text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if len(b.kept) != maxOutput || !bytes.HasSuffix(b.kept, []byte("abc")) {
		t.Errorf("%d bytes are kept, want %d", len(b.kept), maxOutput)
	}
}
