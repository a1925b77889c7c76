package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// tarOf makes a tar of files with these contents, with an end marker. A long name has an extended header.
func tarOf(t *testing.T, name string, contents ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, content := range contents {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// less returns all but the last n bytes.
func less(data []byte, n int) []byte { return slices.Clone(data[:len(data)-n]) }

func TestAnArchiveEndsWhereAFileEnds(t *testing.T) {
	short, whole := tarOf(t, "f", "one", "two"), tarOf(t, "f", "one", strings.Repeat("x", 2*block))
	zeros := tarOf(t, "f", "one", string(make([]byte, 4*block)))
	extended := tarOf(t, strings.Repeat("n", 300), "one") // three blocks for the name, two for the file
	const cut = "unexpected EOF"
	tests := []struct {
		name   string
		data   []byte
		marked bool
		words  string // of the error
	}{
		{"whole", short, true, ""},
		{"padded", append(slices.Clone(short), make([]byte, 10000)...), true, ""},
		{"only an end marker", make([]byte, endMarker), true, ""},
		{"nothing", nil, false, ""},
		{"no end marker", less(short, endMarker), false, ""},
		{"half an end marker", less(short, block), false, ""},
		{"three quarters of an end marker", less(short, block/2), false, cut},
		{"no padding of the last file", less(short, endMarker+block-3), false, ""},
		{"half the padding", less(short, endMarker+block/2), false, ""},
		{"without the last byte of a file", less(short, endMarker+block-2), false, cut},
		{"no end marker after whole blocks", less(whole, endMarker), false, ""},
		{"in whole blocks", less(whole, endMarker+block), false, cut},
		{"no end marker after zeros", less(zeros, endMarker), false, ""},
		{"half an end marker after zeros", less(zeros, block), false, ""},
		{"in zeros", less(zeros, endMarker+block), false, cut},
		{"in a header", less(short, endMarker+block+block/2), false, cut},
		{"after an extended header", less(extended, endMarker+2*block), false, cut},
		{"end marker after an extended header", append(less(extended, endMarker+2*block), make([]byte, endMarker)...), false, cut},
		{"data after the end marker", append(slices.Clone(short), 0, 'x'), false, "data follows its end marker"},
		{"zeros after data after the end marker", append(append(slices.Clone(short), 'x'), make([]byte, 9000)...), false, "data follows its end marker"},
	}
	for _, test := range tests {
		for kind, in := range map[string]io.Reader{"": bytes.NewReader(test.data), ", byte by byte": iotest.OneByteReader(bytes.NewReader(test.data))} {
			t.Run(test.name+kind, func(t *testing.T) {
				a := NewArchive(in)
				var err error
				for err == nil {
					_, err = a.Next()
				}
				if _, again := a.Next(); !errors.Is(again, err) {
					t.Errorf("Next returns %v, and then %v", err, again)
				}
				if test.words != "" {
					if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), test.words) {
						t.Errorf("the error is %v, want %q", err, test.words)
					}
					return
				}
				if !errors.Is(err, io.EOF) || a.Marked() != test.marked || a.Size() != int64(len(test.data)) {
					t.Errorf("%v, marked %v, %d of %d bytes", err, a.Marked(), a.Size(), len(test.data))
				}
			})
		}
	}
}

// The content of a sparse file may be a hole of many terabytes: nobody reads it to go on to the next entry.
func TestAnArchiveSkipsHoles(t *testing.T) {
	data := tarOf(t, "f", "0123456789")
	header := data[:block] // a header of GNU's old format, with no data: the file is a hole of 8 TiB
	copy(header[156:], "S")
	copy(header[257:], "ustar  \x00")
	copy(header[124:136], "00000000000\x00")                                  // the size in the archive
	copy(header[386:], make([]byte, block-386))                               // no parts with data
	copy(header[483:495], "\x80\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00") // the file's size
	copy(header[148:156], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:156], []byte{'0', byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	a := NewArchive(bytes.NewReader(append(slices.Clone(header), make([]byte, endMarker)...)))
	if h, err := a.Next(); err != nil || h.Size != 8<<40 {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, err := a.Next(); !errors.Is(err, io.EOF) || !a.Marked() {
		t.Errorf("%v, marked %v", err, a.Marked())
	}
}
