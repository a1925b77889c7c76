package plugins

import (
	"bytes"
	"testing"
	"time"
)

// A plugin that prints without an end is stopped, and the launcher keeps no more than the limit of it.
func TestAPluginsOutputHasALimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes int
		stops bool
	}{
		{"at the limit", maxOutput, false},
		{"a byte more", maxOutput + 1, true},
		{"much more", 8 * maxOutput, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stops := 0
			p, err := newPipes("", func() { stops++ })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.stdio[1].Write(bytes.Repeat([]byte("x"), tt.bytes)); err != nil {
				t.Error(err)
			}
			stdout, _ := p.finish(time.Minute)
			if tt.stops != (stops == 1) || stops > 1 {
				t.Errorf("stopped %d times", stops)
			}
			if most := maxOutput + 32<<10; len(stdout) > most { // a read more
				t.Errorf("%d bytes are kept", len(stdout))
			}
			if !tt.stops && len(stdout) != tt.bytes {
				t.Errorf("%d bytes of %d are kept", len(stdout), tt.bytes)
			}
		})
	}
}

// Of what a plugin writes to stderr, the end is kept.
func TestAPluginsLastWordsAreKept(t *testing.T) {
	p, err := newPipes("", func() { t.Error("stopped") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.stdio[2].Write(append(bytes.Repeat([]byte("x"), 4*maxOutput), "last"...)); err != nil {
		t.Error(err)
	}
	if _, stderr := p.finish(time.Minute); len(stderr) != maxWords || !bytes.HasSuffix(stderr, []byte("xlast")) {
		t.Errorf("%d bytes are kept, at the end %q", len(stderr), stderr[max(0, len(stderr)-8):])
	}
}
