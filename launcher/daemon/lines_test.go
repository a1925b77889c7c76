package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Lines come in the order of time, those of one time in the order of the apps, and none after an error.
func TestLinesOfAppsAreMergedByTime(t *testing.T) {
	source := func(app string, seconds ...int) chan LogLine {
		lines := make(chan LogLine, len(seconds))
		for _, s := range seconds {
			lines <- LogLine{App: app, Time: time.Unix(int64(s), 0)}
		}
		close(lines)
		return lines
	}
	merge := func(end error) (got string, err error) {
		sources := []chan LogLine{source("a", 1, 3, 3), source("none"), source("b", 2, 3, 4)}
		err = mergeLines(sources, func(l LogLine) error {
			got += l.App + l.Time.UTC().Format("5 ")
			return end
		})
		return got, err
	}
	if got, err := merge(nil); got != "a1 b2 a3 a3 b3 b4 " || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	deaf := errors.New("not written")
	if got, err := merge(deaf); got != "a1 " || !errors.Is(err, deaf) {
		t.Errorf("after an error: %s, %v", got, err)
	}
}

// A line is sent whole, however it was written, and a text without a time is a call-in's message.
func TestLinesAreSentWithTheirTimes(t *testing.T) {
	const stamp = "2026-11-21T03:00:01.5Z"
	to := make(chan LogLine, 9)
	sender := &lineSender{ctx: t.Context(), app: "a", stream: "stdout", to: to}
	for _, part := range []string{stamp + " on", "e\n" + stamp + " \n" + stamp, " last"} {
		if n, err := sender.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if err := sender.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Write([]byte("logs: no app\n")); err != nil {
		t.Fatal(err)
	}
	close(to)
	var got []string
	for l := range to {
		text := l.App + l.Stream + " " + l.Text
		if l.Whole {
			text += "|"
		}
		if isMessage := l.Text == "logs: no app"; isMessage != (l.Stamp == "") || !isMessage && (l.Stamp != stamp || l.Time.Nanosecond() != 500_000_000) {
			t.Errorf("%+v", l)
		}
		got = append(got, text)
	}
	if want := []string{"astdout one|", "astdout |", "astdout last", "astdout logs: no app|"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&lineSender{ctx: ended, to: make(chan LogLine)}).Write([]byte(stamp + " x\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody reads: %v", err)
	}
}

// A line of any length is sent in small parts of whole characters, which together are the line.
func TestLongLinesAreSentInParts(t *testing.T) {
	const stamp = "2026-11-21T07:56:41.267098441Z"
	long := strings.Repeat("é☃𝄞", 100_000)
	to := make(chan LogLine, 99)
	sender := &lineSender{ctx: t.Context(), to: to}
	for chunk := range slices.Chunk([]byte(stamp+" short\n"+stamp+" "+long+"\n"+stamp+" "+long), 1001) {
		if _, err := sender.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.flush(); err != nil {
		t.Fatal(err)
	}
	close(to)
	var lines []string
	for l := range to {
		if l.Stamp != stamp || l.Time.IsZero() || len(l.Text) > maxPart || !utf8.ValidString(l.Text) {
			t.Errorf("part of %d bytes at %q", len(l.Text), l.Stamp)
		}
		if l.First {
			lines = append(lines, "")
		}
		lines[len(lines)-1] += l.Text
		if l.Whole {
			lines[len(lines)-1] += "|"
		}
	}
	if want := []string{"short|", long + "|", long}; !slices.Equal(lines, want) {
		t.Errorf("%d lines", len(lines))
	}
}
