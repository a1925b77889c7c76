package helper

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"
)

const (
	maxLine  = 2048 // bytes of a line in the log; the rest of the line is dropped
	maxLines = 100  // lines in each period; the others are counted
	period   = time.Second
)

// LogOutput logs each line of r, with the helper's name, until r ends. It reads as fast as the
// helper writes, so the helper never waits. It logs at most a hundred lines a second, and the number
// of lines that it has dropped.
func LogOutput(r io.Reader, name string, log *slog.Logger) {
	o := output{log: log.With("helper", name)}
	for lines := bufio.NewReaderSize(r, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			o.write(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			o.tellLost()
			return
		}
	}
}

// output is the state of logging a helper's output.
type output struct {
	log   *slog.Logger
	since time.Time // the start of the period
	lines int       // logged in the period
	lost  int       // dropped in the period
}

func (o *output) write(line []byte) {
	if now := time.Now(); now.Sub(o.since) > period {
		o.tellLost()
		o.since, o.lines = now, 0
	}
	if o.lines == maxLines {
		o.lost++
		return
	}
	o.lines++
	o.log.Info("helper says", "line", strings.TrimRight(string(line), "\r\n"))
}

func (o *output) tellLost() {
	if o.lost > 0 {
		o.log.Warn("helper writes too many lines: some are dropped", "lines", o.lost)
		o.lost = 0
	}
}
