package sources

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A document that is changed after its file was checked is not parsed.
func TestADocumentIsWhatWasChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "document")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(string, string, int64) (*os.File, func(), error) {
		file, err := os.Open(path)
		return file, func() { _ = file.Close() }, err
	}
	of := v1.Descriptor{Size: 2, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	parse := func(io.Reader) (*v1.Manifest, error) {
		t.Error("the document is parsed")
		return &v1.Manifest{}, nil
	}
	if _, err := readDocument("manifest", of, open, parse); err == nil || !strings.Contains(err.Error(), "digest sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a, not") {
		t.Error(err)
	}
}
