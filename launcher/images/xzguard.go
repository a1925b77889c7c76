package images

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// xzGuard passes an xz file through and reads its structure on the way (The .xz File Format
// 1.2.1, tukaani.org/xz), because the decoder allocates the dictionary that a block
// asks for, of up to 4 GiB, for each block, and a block can be 30 bytes long. Expansion
// bounds the sum of the dictionaries.
//
//	Stream Header | Block… | Index | Stream Footer | Stream Padding
//	Block: Block Header | LZMA2 chunk… | 0 | padding | check
type xzGuard struct {
	in        *bufio.Reader
	expansion expansion

	part   []byte // of the file, to be passed through
	left   int64  // how many bytes to pass through after part without a look at them
	next   func() error
	check  int64  // bytes of the check at the end of each block
	block  int64  // bytes of the current block's chunks
	blocks uint64 // of the current stream
	memory int64  // bytes of all dictionaries
}

const (
	maxVarint = 9       // bytes of the longest number in an xz file
	maxBlocks = 1 << 20 // of a stream; the guard and the decoder keep its whole index
)

var errXZ = errors.New("the xz file is damaged, or has a filter other than LZMA2")

func guardXZ(in *bufio.Reader, e expansion) *xzGuard {
	g := &xzGuard{in: in, expansion: e}
	g.next = g.header
	return g
}

// Read implements io.Reader.
func (g *xzGuard) Read(p []byte) (int, error) {
	for len(g.part) == 0 && g.left == 0 {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	if len(g.part) > 0 {
		n := copy(p, g.part)
		g.part = g.part[n:]
		return n, nil
	}
	n, err := g.in.Read(p[:min(int64(len(p)), g.left)])
	g.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// take reads n bytes, adds them to the part, and returns them.
func (g *xzGuard) take(n int) ([]byte, error) {
	start := len(g.part)
	g.part = append(g.part, make([]byte, n)...)
	if _, err := io.ReadFull(g.in, g.part[start:]); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return g.part[start:], nil
}

func (g *xzGuard) number() (uint64, error) {
	start, err := g.in.Peek(maxVarint) // after each number there is more, at least the Stream Footer
	if err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	number, n := binary.Uvarint(start)
	if n <= 0 {
		return 0, errXZ
	}
	_, err = g.take(n)
	return number, err
}

// header reads a Stream Header, or four bytes of padding, or the end of the file.
func (g *xzGuard) header() error {
	start, err := g.in.Peek(4)
	if len(start) == 0 {
		return io.EOF
	}
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if binary.LittleEndian.Uint32(start) == 0 {
		g.left = 4
		return nil
	}
	flags, err := g.take(12)
	if err != nil {
		return err
	}
	sizes := [16]int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}
	g.check = sizes[flags[7]&15]
	g.blocks, g.next = 0, g.blockOrIndex
	return nil
}

func (g *xzGuard) blockOrIndex() error {
	size, err := g.take(1)
	if err != nil {
		return err
	}
	if size[0] == 0 {
		g.next = g.header
		return g.index()
	}
	if g.blocks++; g.blocks > maxBlocks {
		return fmt.Errorf("the xz file has more than %d blocks", maxBlocks)
	}
	header, err := g.take(int(size[0])*4 + 3)
	if err != nil {
		return err
	}
	g.block, g.next = 0, g.chunk
	return g.filters(header)
}

// filters reads a Block Header after its first byte.
func (g *xzGuard) filters(header []byte) error {
	flags, rest := header[0], header[1:]
	for _, present := range []byte{0x40, 0x80} { // compressed and uncompressed size
		if flags&present != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return errXZ
			}
			rest = rest[n:]
		}
	}
	if flags&3 != 0 || len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 || rest[2] > 40 {
		return errXZ
	}
	g.memory += (2 | int64(rest[2]&1)) << (rest[2]/2 + 11)
	return g.expansion.allow(g.memory)
}

// chunk reads the head of an LZMA2 chunk, or what follows the last one.
func (g *xzGuard) chunk() error {
	control, err := g.take(1)
	if err != nil {
		return err
	}
	length := 2
	switch {
	case control[0] == 0:
		g.block++
		g.left = (4-g.block%4)%4 + g.check
		g.next = g.blockOrIndex
		return nil
	case control[0] >= 0xc0:
		length = 5
	case control[0] >= 0x80:
		length = 4
	case control[0] > 2:
		return errXZ
	}
	head, err := g.take(length)
	if err != nil {
		return err
	}
	size := head[:2]
	if length > 2 {
		size = head[2:4]
	}
	g.left = int64(binary.BigEndian.Uint16(size)) + 1
	g.block += 1 + int64(length) + g.left
	return nil
}

// index reads an Index after its first byte, and the Stream Footer.
func (g *xzGuard) index() error {
	start := len(g.part) - 1
	records, err := g.number()
	if err != nil {
		return err
	}
	if records != g.blocks {
		return errXZ
	}
	for range records {
		for range 2 {
			if _, err := g.number(); err != nil {
				return err
			}
		}
	}
	padding := (4 - (len(g.part)-start)%4) % 4
	_, err = g.take(padding + 4 + 12)
	return err
}
