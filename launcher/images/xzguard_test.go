package images

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// A guard keeps a stream's index, which has a record for each block of the stream and no others.
func TestAnXZIndexIsThatOfItsBlocks(t *testing.T) {
	header := append([]byte("\xfd7zXZ\x00"), make([]byte, 6)...)
	many := bytes.Repeat([]byte{0xff}, maxVarint-1)
	file := append(append(header, 0), append(many, 1)...)
	records := io.LimitReader(zeroReader{}, 64<<20)
	g := guardXZ(bufio.NewReader(io.MultiReader(bytes.NewReader(file), records)), expansion{packed: &counter{}})
	if n, err := io.Copy(io.Discard, g); !errors.Is(err, errXZ) || cap(g.part) > 1<<20 {
		t.Errorf("an index of 2^57 records for no block: %d bytes, %d of the index, %v", n, cap(g.part), err)
	}
	g = guardXZ(bufio.NewReader(strings.NewReader("\x02")), expansion{packed: &counter{}})
	g.blocks = maxBlocks
	if err := g.blockOrIndex(); err == nil || !strings.Contains(err.Error(), "more than 1048576 blocks") {
		t.Errorf("too many blocks: %v", err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
