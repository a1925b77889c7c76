package helper

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A flood is cut to a hundred lines a second, a long line to 2048 bytes, and the last
// line needs no end.
func TestFloodsAndLongLinesAreCut(t *testing.T) {
	var text, log bytes.Buffer
	fmt.Fprintf(&text, "%s\nshort\r\n\n", strings.Repeat("x", 100_000))
	for i := range 1000 {
		fmt.Fprintln(&text, "line", i)
	}
	LogOutput(&text, "flood", slog.New(slog.NewTextHandler(&log, nil)))
	LogOutput(strings.NewReader("one\nlast"), "quiet", slog.New(slog.NewTextHandler(&log, nil)))
	lines := strings.Split(log.String(), "\n")
	if len(lines) != 104 || !strings.HasSuffix(lines[0], "helper=flood line="+strings.Repeat("x", 2048)) ||
		!strings.HasSuffix(lines[1], "helper=flood line=short") || !strings.HasSuffix(lines[99], `line="line 96"`) ||
		!strings.HasSuffix(lines[100], "helper=flood lines=903") || !strings.HasSuffix(lines[102], "helper=quiet line=last") {
		t.Errorf("%d lines:\n%.10000s", len(lines), log.String())
	}
}
