package line

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait: long past it something hangs.
const patience = 60 * time.Second

// pair makes a line over a pipe without a buffer, so that nothing passes that the other
// end has not taken. The test fails if an end that still serves does not end with it.
func pair(t *testing.T, acceptA, acceptB func(*Channel, []byte)) (a, b *Line) {
	t.Helper()
	ours, theirs := net.Pipe()
	a, b = New(ours, EndA, acceptA), New(theirs, EndB, acceptB)
	served := make(chan error, 2)
	for _, l := range []*Line{a, b} {
		go func() { served <- l.Serve() }()
	}
	t.Cleanup(func() {
		a.Close()
		for range 2 {
			select {
			case <-served:
			case <-time.After(patience):
				t.Error("Serve does not return")
			}
		}
	})
	return a, b
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

func open(t *testing.T, l *Line, request string) *Channel {
	t.Helper()
	ch, err := l.Open([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// echo sends every stream back, and each note, and closes with the request.
func echo(ch *Channel, request []byte) {
	go func() {
		for note := range ch.Notes() {
			_ = ch.Note(note)
		}
	}()
	for i := range Streams {
		_, _ = io.Copy(ch.Writer(i), ch.Reader(i))
		_ = ch.Writer(i).Close()
	}
	_ = ch.Close(request)
}

func TestStreamsNotesAndResultArrive(t *testing.T) {
	a, b := pair(t, echo, echo)
	for name, l := range map[string]*Line{"A": a, "B": b} {
		ch := open(t, l, "request of "+name)
		if err := ch.Note([]byte("a note")); err != nil {
			t.Fatal(err)
		}
		if note := <-ch.Notes(); string(note) != "a note" {
			t.Errorf("note %q", note)
		}
		for i := range Streams {
			// More than a window, and no multiple of anything.
			sent := bytes.Repeat([]byte{byte(i), 1, 2}, Window)
			go func() {
				_, _ = ch.Writer(i).Write(sent)
				_ = ch.Writer(i).Close()
			}()
			got, err := io.ReadAll(ch.Reader(i))
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("stream %d: %d bytes and %v, want %d", i, len(got), err, len(sent))
			}
		}
		within(t, "the result", ch.Done())
		if result, err := ch.Result(); err != nil || string(result) != "request of "+name {
			t.Errorf("result %q, %v", result, err)
		}
	}
}

func TestReaderThatStopsBlocksItsOwnStreamOnly(t *testing.T) {
	stalled := make(chan *Channel, 1)
	a, _ := pair(t, nil, func(ch *Channel, request []byte) {
		if string(request) == "stall" {
			stalled <- ch
			return
		}
		echo(ch, request)
	})
	ch := open(t, a, "stall")
	written := make(chan struct{})
	go func() {
		n, err := ch.Writer(1).Write(make([]byte, 3*Window))
		if n != Window || !errors.Is(err, ErrClosed) {
			t.Errorf("wrote %d bytes and %v, want the window", n, err)
		}
		close(written)
	}()
	other := <-stalled
	// Another stream of the channel, its notes, and another channel go on.
	if _, err := ch.Writer(2).Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64)
	if n, err := other.Reader(2).Read(piece); err != nil || string(piece[:n]) != "still here" {
		t.Errorf("read %q, %v", piece[:n], err)
	}
	if err := ch.Note([]byte("interrupt")); err != nil {
		t.Fatal(err)
	}
	if note := <-other.Notes(); string(note) != "interrupt" {
		t.Errorf("note %q", note)
	}
	other.mu.Lock()
	for len(other.in[1].unread) < Window {
		other.changed.Wait()
	}
	other.mu.Unlock()
	second := open(t, a, "echo")
	for i := range Streams {
		if err := second.Writer(i).Close(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the other channel's end", second.Done())
	if err := ch.Close(nil); err != nil {
		t.Fatal(err)
	}
	within(t, "the blocked write", written)
	within(t, "the other end's end", other.Done())
	if got, err := io.ReadAll(other.Reader(1)); err != nil || len(got) != Window {
		t.Errorf("read %d bytes and %v after the end, want %d", len(got), err, Window)
	}
}

func TestMoreNotesThanAreReadAreDropped(t *testing.T) {
	accepted := make(chan *Channel, 1)
	a, _ := pair(t, nil, func(ch *Channel, _ []byte) { accepted <- ch })
	ch := open(t, a, "")
	for range 2 * maxNotes {
		if err := ch.Note([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Close([]byte("done")); err != nil {
		t.Fatal(err)
	}
	theirs := <-accepted
	within(t, "the end", theirs.Done())
	count := 0
	for range theirs.Notes() {
		count++
	}
	if count != maxNotes {
		t.Errorf("%d notes, want %d", count, maxNotes)
	}
}

func TestEndOfTheLineEndsItsChannels(t *testing.T) {
	ours, theirs := net.Pipe()
	a := New(ours, EndA, nil)
	served := make(chan error, 1)
	go func() { served <- a.Serve() }()
	go func() { _, _ = io.CopyN(io.Discard, theirs, headerSize); theirs.Close() }()
	ch := open(t, a, "")
	within(t, "the channel's end", ch.Done())
	if _, err := ch.Result(); err == nil {
		t.Error("a result came")
	}
	if _, err := ch.Writer(0).Write([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := a.Open(nil); err == nil {
		t.Error("a channel could be opened")
	}
}

func TestLongMessagesAreRefused(t *testing.T) {
	a, _ := pair(t, nil, func(*Channel, []byte) {})
	long := make([]byte, MaxPayload+1)
	if _, err := a.Open(long); err == nil {
		t.Error("a long request was sent")
	}
	ch := open(t, a, "")
	if err := ch.Note(long); err == nil {
		t.Error("a long note was sent")
	}
	if err := ch.Close(long); err == nil {
		t.Error("a long result was sent")
	}
}

func bytesOf(frames ...frame) []byte {
	var b []byte
	for _, f := range frames {
		b = f.appendTo(b)
	}
	return b
}

func data(channel uint32, n int) frame {
	return frame{channel: channel, kind: kindData, payload: make([]byte, n)}
}

// hostile are bytes that break the protocol, by what is wrong with them. They are
// sent to an end A that has opened no channel.
func hostile() map[string][]byte {
	opened := frame{channel: 2, kind: kindOpen}
	credit := frame{channel: 2, kind: kindCredit, payload: []byte{0xff, 0xff, 0xff, 0xff}}
	header := func(change func([]byte)) []byte {
		b := data(2, 4).appendTo(opened.appendTo(nil))
		change(b[headerSize:])
		return b
	}
	flood := []frame{opened}
	for range Window/MaxPayload + 1 {
		flood = append(flood, data(2, MaxPayload))
	}
	var many []frame
	for i := range uint32(maxChannels + 1) {
		many = append(many, frame{channel: 2 * (i + 1), kind: kindOpen})
	}
	return map[string][]byte{
		"a length of 4 GiB":         header(func(h []byte) { copy(h[8:], "\xff\xff\xff\xff") }),
		"a length above the limit":  header(func(h []byte) { copy(h[8:], "\x00\x00\x40\x01") }),
		"no data":                   header(func(h []byte) { copy(h[8:], "\x00\x00\x00\x00") }),
		"an unknown kind":           header(func(h []byte) { h[4] = 77 }),
		"kind 0":                    header(func(h []byte) { h[4] = 0 }),
		"an unknown stream":         header(func(h []byte) { h[5] = Streams }),
		"a stream of a note":        header(func(h []byte) { h[4], h[5] = byte(kindNote), 1 }),
		"a full reserved byte":      header(func(h []byte) { h[7] = 1 }),
		"channel 0":                 header(func(h []byte) { copy(h, "\x00\x00\x00\x00") }),
		"a payload of an end":       header(func(h []byte) { h[4] = byte(kindEnd) }),
		"an unopened channel":       bytesOf(data(4, 1)),
		"a number of ours":          bytesOf(frame{channel: 1, kind: kindOpen}),
		"a channel opened twice":    bytesOf(opened, opened),
		"a lower number":            bytesOf(frame{channel: 8, kind: kindOpen}, opened),
		"more than its credit":      bytesOf(flood...),
		"more credit than a window": bytesOf(opened, credit),
		"too many channels":         bytesOf(many...),
	}
}

// wire is a stream to read from; it discards what is written.
type wire struct{ io.Reader }

func (wire) Write(p []byte) (int, error) { return len(p), nil }
func (wire) Close() error                { return nil }

func TestHostileEndIsRefused(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			l := New(wire{bytes.NewReader(text)}, EndA, func(*Channel, []byte) {})
			if err := l.Serve(); !errors.Is(err, ErrPeer) {
				t.Errorf("%v, want ErrPeer", err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
		})
	}
}

// cut are bytes that end in a frame, as they do when the other end is killed.
func cut() map[string][]byte {
	return map[string][]byte{
		"in a header":           bytesOf(frame{channel: 2, kind: kindOpen})[:7],
		"in a payload":          bytesOf(frame{channel: 2, kind: kindOpen}, data(2, 9))[:2*headerSize+3],
		"in front of a payload": bytesOf(frame{channel: 2, kind: kindOpen}, data(2, 9))[:2*headerSize],
	}
}

func TestAnEndInAFrameIsUnexpected(t *testing.T) {
	for name, text := range cut() {
		l := New(wire{bytes.NewReader(text)}, EndA, func(*Channel, []byte) {})
		if err := l.Serve(); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEndThatAcceptsNothingRefusesAChannel(t *testing.T) {
	l := New(wire{bytes.NewReader(bytesOf(frame{channel: 2, kind: kindOpen}))}, EndA, nil)
	if err := l.Serve(); !errors.Is(err, ErrPeer) {
		t.Errorf("%v, want ErrPeer", err)
	}
}

func TestWhatIsSentToAClosedChannelIsIgnored(t *testing.T) {
	text := bytesOf(frame{channel: 2, kind: kindOpen}, frame{channel: 2, kind: kindClose}, data(2, 5),
		frame{channel: 2, kind: kindClose}, frame{channel: 4, kind: kindOpen})
	accepted := make(chan *Channel, 2)
	l := New(wire{bytes.NewReader(text)}, EndA, func(ch *Channel, _ []byte) { accepted <- ch })
	if err := l.Serve(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	for range 2 {
		within(t, "the end of a channel", (<-accepted).Done())
	}
}

func FuzzServe(f *testing.F) {
	for name, text := range hostile() {
		if name != "too many channels" { // it takes long
			f.Add(text)
		}
	}
	f.Add(bytesOf(frame{channel: 2, kind: kindOpen}, data(2, 5), frame{channel: 2, kind: kindEnd}, frame{channel: 2, kind: kindNote}))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := New(wire{bytes.NewReader(text)}, EndA, func(ch *Channel, request []byte) {
			if len(request) > MaxPayload {
				t.Errorf("request of %d bytes", len(request))
			}
			for i := range Streams {
				if got, _ := io.ReadAll(ch.Reader(i)); len(got) > len(text) {
					t.Errorf("%d bytes out of %d", len(got), len(text))
				}
			}
		})
		if err := l.Serve(); err != nil && !errors.Is(err, ErrPeer) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Serve: %v", err)
		}
		if len(l.channels) != 0 {
			t.Errorf("%d channels are left", len(l.channels))
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text)
	}
	for _, text := range cut() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := readFrame(bytes.NewReader(text))
		if err != nil {
			return
		}
		if again := parsed.appendTo(nil); !bytes.HasPrefix(text, again) {
			t.Errorf("%x became %x", text, again)
		}
	})
}
