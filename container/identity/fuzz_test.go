package identity

import (
	"strings"
	"testing"
)

// FuzzScan compares the reader of passwd and group files with a reader that has the whole file in memory.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		"root:x:0:0::/:/bin/sh\nbob:x:1000:1000::/home/bob:/bin/sh\n", "bob\nbob:x\n\n:\nbob:x:y:\nbob:x:1234", "bob:x:4294967295:\nbob:x:4294967294:\r\n",
		"bob:x:12\r", "#bob:x:1:\nbob::7", strings.Repeat(":", maxLine) + "\nbob:x:5:\n", "bob:" + strings.Repeat("x", maxLine-6) + ":12:\n",
	} {
		f.Add(text, "bob")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		id, found := scan(strings.NewReader(text), name)
		wantID, wantFound := inMemory(text, name)
		if id != wantID || found != wantFound {
			t.Errorf("%d, %t, want %d, %t: %q in %q", id, found, wantID, wantFound, name, text)
		}
	})
}

// inMemory is scan in its simplest form. In a line longer than maxLine only the fields that begin and
// end in its first maxLine bytes exist.
func inMemory(text, name string) (uint32, bool) {
	for line := range strings.SplitSeq(text, "\n") {
		var fields []string
		if len(line) < maxLine {
			fields = strings.Split(strings.TrimRight(line, "\r"), ":")
		} else {
			fields = strings.Split(line[:maxLine], ":")
			fields = fields[:len(fields)-1]
		}
		if len(fields) < 3 || fields[0] != name {
			continue
		}
		if id, ok := parseID(fields[2]); ok {
			return id, true
		}
	}
	return 0, false
}
