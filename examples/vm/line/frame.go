package line

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is a header and its payload, all numbers big-endian:
//
//	byte  0        4      5        6          8        12
//	      ├────────┼──────┼────────┼──────────┼────────┼─────────┤
//	      │channel │ kind │ stream │ 0        │ length │ payload │
//
//	kind    stream  payload
//	open    0       the request                 the sender opens a channel; its number is higher than
//	                                            all that it used before, odd for one end, even for the other
//	data    any     1 byte or more              bytes of a stream, at most as many as the sender has credit for
//	end     any     none                        end of file of a stream
//	credit  any     4 bytes, a number           so many further bytes of the stream may be sent
//	note    0       a message                   beside the streams: no credit is needed
//	close   0       the result                  the channel is over, in both directions
//
// An end that has closed a channel ignores what the other one sent meanwhile.
type frame struct {
	channel uint32
	kind    kind
	stream  uint8
	payload []byte
}

type kind uint8

const (
	kindOpen kind = iota + 1
	kindData
	kindEnd
	kindCredit
	kindNote
	kindClose
)

const (
	headerSize = 12
	creditSize = 4

	// MaxPayload bounds a request, a note and a result in bytes, and what one
	// frame carries of a stream.
	MaxPayload = 16 << 10
)

// errFrame means that the bytes are not a frame. What follows cannot be understood.
var errFrame = errors.New("malformed frame")

// appendTo encodes the frame behind b.
func (f frame) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.channel)
	b = append(b, byte(f.kind), f.stream, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(b, f.payload...)
}

// readFrame reads one frame, with a payload of its own. It returns io.EOF if r
// ends between two frames, and io.ErrUnexpectedEOF if it ends in one.
func readFrame(r io.Reader) (frame, error) {
	var header [headerSize]byte
	if n, err := io.ReadFull(r, header[:]); err != nil {
		if n > 0 {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	f := frame{channel: binary.BigEndian.Uint32(header[0:]), kind: kind(header[4]), stream: header[5]}
	length := binary.BigEndian.Uint32(header[8:])
	if header[6] != 0 || header[7] != 0 {
		return frame{}, fmt.Errorf("%w: bytes 6 and 7 of the header are not 0", errFrame)
	}
	if err := f.check(length); err != nil {
		return frame{}, err
	}
	f.payload = make([]byte, length)
	if _, err := io.ReadFull(r, f.payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// check checks the header before a payload of that length is read.
func (f frame) check(length uint32) error {
	streams := uint8(1)
	lowest, highest := uint32(0), uint32(MaxPayload)
	switch f.kind {
	case kindOpen, kindNote, kindClose:
	case kindData:
		streams, lowest = Streams, 1
	case kindEnd:
		streams, highest = Streams, 0
	case kindCredit:
		streams, lowest, highest = Streams, creditSize, creditSize
	default:
		return fmt.Errorf("%w: unknown kind %d", errFrame, f.kind)
	}
	switch {
	case f.channel == 0:
		return fmt.Errorf("%w: channel 0", errFrame)
	case f.stream >= streams:
		return fmt.Errorf("%w: stream %d of kind %d", errFrame, f.stream, f.kind)
	case length < lowest || length > highest:
		return fmt.Errorf("%w: kind %d has %d bytes, want %d to %d", errFrame, f.kind, length, lowest, highest)
	}
	return nil
}
