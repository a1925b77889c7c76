package daemon

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A follower of the stager's log goes on behind what it has read when older lines are taken away.
func TestFollowersOfTheStagersLogSurviveItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stager.log")
	write := func(flag, from, to int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for i := from; i < to; i++ {
			fmt.Fprintln(f, "line", i)
		}
	}
	write(0, 0, 1000)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := &stagerLogFile{file: f}
	wantLines := func(from, to int) {
		t.Helper()
		text, err := io.ReadAll(lines)
		want := ""
		for i := from; i < to; i++ {
			want += fmt.Sprintln("line", i)
		}
		if string(text) != want || err != nil {
			t.Errorf("%v, %d bytes %.50q, want lines %d to %d", err, len(text), text, from, to-1)
		}
	}
	wantLines(0, 1000)
	write(os.O_APPEND, 1000, 1100)
	wantLines(1000, 1100)
	write(os.O_TRUNC, 500, 1120) // the older half is gone, and there is more
	wantLines(1100, 1120)
	write(os.O_TRUNC, 1200, 1300) // more than the follower remembers is gone
	wantLines(1200, 1300)
}
