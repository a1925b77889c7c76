package waiter

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
)

// A helper runs when it has reported that it is ready, and then nothing more.
func TestHelpersReport(t *testing.T) {
	for name, test := range map[string]struct {
		reports []uint32 // step and errno of each
		want    error
	}{
		"runs":                          {[]uint32{stepReady, 0}, nil},
		"is killed before its program":  {nil, errNoReport},
		"has no such program":           {[]uint32{stepReady, 0, stepExec, uint32(syscall.ENOENT)}, os.ErrNotExist},
		"cannot enter its surroundings": {[]uint32{1, uint32(syscall.EPERM)}, syscall.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := errors.Join(binary.Write(w, binary.NativeEndian, test.reports), w.Close()); err != nil {
				t.Fatal(err)
			}
			if err := (helperPipes{report: r}).result(context.Background(), "/bin/helper"); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
