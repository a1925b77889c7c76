package sparse

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"
)

// A file with holes has the content that it had, wherever its zeros are, and Data is what it has on the disk.
func TestAFileWithHolesIsWhole(t *testing.T) {
	data, gap := bytes.Repeat([]byte("x"), hole), make([]byte, 3*hole)
	buffer := make([]byte, 2*hole)
	for name, want := range map[string][]byte{
		"none": {}, "a byte": {7}, "zeros": gap, "a few zeros": gap[:10],
		"a hole first": bytes.Join([][]byte{gap, data}, nil), "a hole last": bytes.Join([][]byte{data, gap}, nil),
		"a hole within":          bytes.Join([][]byte{data[:5], gap, data}, nil),
		"more than a buffer":     bytes.Join([][]byte{data, data, data, data, gap, data, data[:9]}, nil),
		"a few zeros at the end": bytes.Join([][]byte{data, gap[:99]}, nil),
	} {
		for _, buffer := range [][]byte{buffer, nil} {
			path := filepath.Join(t.TempDir(), "file")
			out, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := Write(out, iotest.HalfReader(bytes.NewReader(want)), buffer); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			info, err := out.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if err := out.Close(); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, %v; want the %d", name, len(got), err, len(want))
			}
			if onDisk := int(info.Sys().(*syscall.Stat_t).Blocks) * 512; onDisk > (Data(want)+hole-1)/hole*hole {
				t.Errorf("%s: %d bytes on the disk, Data is %d", name, onDisk, Data(want))
			}
		}
	}
}
