// Package line carries many channels over one reliable stream of bytes, such as
// a virtio serial port or a unix socket. A channel has a request, four streams in
// each direction, notes beside them, and a result. A stream whose reader stops
// blocks its own writer and no other (credit, see frame.go).
//
// Two libraries do less than a channel needs. ttrpc has no flow control (its PROTOCOL.md), so a stream without a reader
// would fill the memory of the machine, and its server opens no streams. yamux has credit, but a stream of yamux is one
// stream of bytes in each direction: a channel would be five, with a protocol over them that says which five belong
// together, and that carries notes and the result. That protocol is most of this package.
package line

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Streams is the number of streams that a channel has in each direction. By
// their numbers they are what a process's descriptors 0 to 3 are.
const Streams = 4

// maxChannels bounds the channels that the other end may have open.
const maxChannels = 2048

// End says which of the two ends of a line this is. Each end is one of them.
type End uint32

// The two ends of a line.
const (
	EndA End = 1 // opens channels of odd numbers
	EndB End = 2 // opens channels of even numbers
)

var (
	// ErrClosed means that the channel has been closed, by either end.
	ErrClosed = errors.New("channel is closed")
	// ErrPeer means that the other end does not keep to the protocol. The line is over.
	ErrPeer = errors.New("the other end breaks the protocol")
)

// Line is one end. Its methods may be called by several goroutines at once.
type Line struct {
	stream io.ReadWriteCloser
	accept func(*Channel, []byte)

	sending sync.Mutex
	frame   []byte // guarded by sending: the frame under way, encoded

	mu       sync.Mutex
	channels map[uint32]*Channel // guarded by mu, as all that follows
	next     uint64              // the number of the next channel that this end opens
	latest   uint32              // the number of the latest channel that the other end has opened
	theirs   int                 // channels that the other end has opened
	err      error               // why the line is over
}

// New makes an end of a line on stream. accept is called, in a goroutine of its
// own, with each channel that the other end opens and the request. With a nil
// accept the other end may open none. Serve must run for anything to arrive.
func New(stream io.ReadWriteCloser, end End, accept func(ch *Channel, request []byte)) *Line {
	return &Line{stream: stream, accept: accept, channels: make(map[uint32]*Channel), next: uint64(end)}
}

// Serve takes what the other end sends until the stream ends, which it then closes.
// All channels are over when it returns. It returns nil if the other end closed the
// stream between two frames, ErrPeer, wrapped, if that end broke the protocol,
// or the error of the stream. It is called once.
func (l *Line) Serve() error {
	reader := bufio.NewReaderSize(l.stream, headerSize+MaxPayload)
	for {
		f, err := readFrame(reader)
		if err == nil {
			err = l.take(f)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			l.fail(io.EOF)
			return nil
		default:
			if errors.Is(err, errFrame) {
				err = fmt.Errorf("%w: %w", ErrPeer, err)
			}
			l.fail(err)
			return err
		}
	}
}

// Open opens a channel. The request has at most MaxPayload bytes.
func (l *Line) Open(request []byte) (*Channel, error) {
	if len(request) > MaxPayload {
		return nil, fmt.Errorf("request has %d bytes, want at most %d", len(request), MaxPayload)
	}
	// Numbers must reach the other end in their order.
	l.sending.Lock()
	defer l.sending.Unlock()
	ch, err := l.add()
	if err != nil {
		return nil, err
	}
	if err := l.write(frame{channel: ch.id, kind: kindOpen, payload: request}); err != nil {
		l.fail(err)
		return nil, err
	}
	return ch, nil
}

// Close ends the line and all of its channels.
func (l *Line) Close() error {
	l.fail(ErrClosed)
	return nil
}

func (l *Line) add() (*Channel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return nil, l.err
	case l.next > 1<<32-1:
		return nil, errors.New("all channel numbers have been used")
	}
	ch := newChannel(l, uint32(l.next))
	l.channels[ch.id] = ch
	l.next += 2
	return ch, nil
}

// take handles one frame. It must not wait for the other end, nor for a reader:
// all channels are behind it.
func (l *Line) take(f frame) error {
	if f.kind == kindOpen {
		return l.opened(f)
	}
	l.mu.Lock()
	ch := l.channels[f.channel]
	known := ch != nil || f.channel <= l.latest || uint64(f.channel) < l.next
	l.mu.Unlock()
	if ch == nil {
		if !known {
			return fmt.Errorf("%w: channel %d has not been opened", ErrPeer, f.channel)
		}
		return nil // sent before the other end knew that it is closed
	}
	return ch.take(f)
}

func (l *Line) opened(f frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.accept == nil:
		return fmt.Errorf("%w: it opens a channel", ErrPeer)
	case uint64(f.channel)%2 == l.next%2 || f.channel <= l.latest:
		return fmt.Errorf("%w: channel %d cannot be opened", ErrPeer, f.channel)
	case l.theirs == maxChannels:
		return fmt.Errorf("%w: it opens more than %d channels", ErrPeer, maxChannels)
	}
	ch := newChannel(l, f.channel)
	l.channels[ch.id] = ch
	l.latest = ch.id
	l.theirs++
	go l.accept(ch, f.payload)
	return nil
}

// forget takes a channel out that is over.
func (l *Line) forget(ch *Channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.channels[ch.id] != ch {
		return
	}
	delete(l.channels, ch.id)
	if uint64(ch.id)%2 != l.next%2 {
		l.theirs--
	}
}

// send writes one frame. An error ends the line.
func (l *Line) send(f frame) error {
	l.sending.Lock()
	err := l.write(f)
	l.sending.Unlock()
	if err != nil {
		l.fail(err)
	}
	return err
}

// write writes one frame. The caller holds sending.
func (l *Line) write(f frame) error {
	l.frame = f.appendTo(l.frame[:0])
	if _, err := l.stream.Write(l.frame); err != nil {
		return fmt.Errorf("write to line: %w", err)
	}
	return nil
}

// fail ends the line for that reason, unless it is over.
func (l *Line) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	channels := l.channels
	l.channels = make(map[uint32]*Channel)
	l.mu.Unlock()
	_ = l.stream.Close() // nothing more is sent, and Serve ends
	for _, ch := range channels {
		ch.finish(nil, err)
	}
}
