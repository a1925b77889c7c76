package server

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Root alone can connect to the server.
func TestTheSocketIsRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "cri.sock")
	listener, err := makeSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

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
