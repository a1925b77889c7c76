package server

import (
	"bytes"
	"testing"
)

// The exit status 125 is the command's own, unless the stager says that it could not run the command.
func TestCommandsThatCouldNotBeRun(t *testing.T) {
	for _, test := range []struct {
		code       int
		text, want string
		err        string
	}{
		{125, "run: sorry\n", "run: sorry\n", ""},
		{125, "", "", ""},
		{125, "NAME: the pod's supervisor has gone\n", "", "run command: the pod's supervisor has gone"},
		{125, "out\nNANAME: the pod's supervisor has gone\n", "out\nNA", "run command: the pod's supervisor has gone"},
		{0, "NAME of NAM", "NAME of NAM", ""},
		{127, "NAME: no such file\n", "run: no such file\n", ""},
	} {
		for size := 1; size <= len(test.text)+1; size++ { // of the writes
			var got bytes.Buffer
			m := messages{name: "NAME", to: &got}
			for text := []byte(test.text); len(text) > 0; text = text[min(size, len(text)):] {
				if _, err := m.Write(text[:min(size, len(text))]); err != nil {
					t.Error(err)
				}
			}
			err := m.end(test.code)
			if got.String() != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("%d, %q in writes of %d: %q, %v", test.code, test.text, size, got.String(), err)
			}
		}
	}
}
