package aside

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// random returns so many bytes.
func random(t *testing.T, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	if _, err := rand.NewChaCha8([32]byte{}).Read(data); err != nil {
		t.Fatal(err)
	}
	return data
}

// Who reads ahead reads the same bytes, and the same error after them.
func TestWhatIsReadAheadIsTheSame(t *testing.T) {
	broken := errors.New("broken")
	for _, size := range []int{0, 1, bufferSize - 1, bufferSize, bufferSize + 1, 3*buffers*bufferSize + 7} {
		want := random(t, size)
		for name, in := range map[string]io.Reader{
			"whole": bytes.NewReader(want), "halves": iotest.HalfReader(bytes.NewReader(want)),
			"end with data": iotest.DataErrReader(bytes.NewReader(want)),
		} {
			for wantErr, in := range map[error]io.Reader{nil: in, broken: io.MultiReader(bytes.NewReader(want), iotest.ErrReader(broken))} {
				r := Read(in)
				got, err := io.ReadAll(r)
				if !bytes.Equal(got, want) || !errors.Is(err, wantErr) {
					t.Errorf("%s: %d of %d bytes, %v, want %v", name, len(got), size, err, wantErr)
				}
				if _, again := r.Read(make([]byte, 1)); again == nil {
					t.Errorf("%s: no error at the end", name)
				}
				r.Close()
			}
		}
	}
}

// Nothing is read after Close, whatever was read before.
func TestNothingIsReadAfterClose(t *testing.T) {
	for _, read := range []int64{0, 1, 3 * bufferSize} {
		in := &io.LimitedReader{R: rand.NewChaCha8([32]byte{}), N: 1 << 40}
		r := Read(in)
		if _, err := io.CopyN(io.Discard, r, read); err != nil {
			t.Error(err)
		}
		r.Close()
		left := in.N
		if ahead := 1<<40 - left - read; ahead > buffers*bufferSize {
			t.Errorf("read %d bytes ahead", ahead)
		}
		r.Close()
		if in.N != left {
			t.Error("read after Close")
		}
	}
}

// A hash is that of what was written, in whatever pieces.
func TestAHashIsThatOfWhatWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, bufferSize - 1, bufferSize, bufferSize + 1, 3*buffers*bufferSize + 7} {
		data := random(t, size)
		h := NewHash(sha256.New())
		for rest, n := data, 1; len(rest) > 0; n = 3*n + 1 {
			n = min(n, len(rest))
			if written, err := h.Write(rest[:n]); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		want := sha256.Sum256(data)
		if got := h.Sum(); !bytes.Equal(got, want[:]) {
			t.Errorf("%d bytes: %x, want %x", size, got, want)
		}
		h.Close()
	}
}

// broken is a decoder with a defect.
type broken struct{}

func (broken) Read([]byte) (int, error) { panic("defect") }

// A decoder's panic is an error of who reads, and does not end the process.
func TestADecodersPanicIsAnError(t *testing.T) {
	r := Read(io.MultiReader(bytes.NewReader([]byte("text")), broken{}))
	defer r.Close()
	if got, err := io.ReadAll(r); err == nil || err.Error() != "decoder: defect" || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}
