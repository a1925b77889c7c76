package supervisor

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMessagesDoNotWaitForTheirReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m := NewMessages(w)
	long := strings.Repeat("x", 1000)
	const n = 5000
	for i := range n {
		fmt.Fprintf(m, "%d %s\n", i, long)
	}
	text := make(chan string)
	go func() {
		all, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		text <- string(all)
	}()
	// The reader goes on, so there is room for this in the end.
	for {
		m.mu.Lock()
		room := len(m.queue) == 0
		m.mu.Unlock()
		if room {
			break
		}
	}
	fmt.Fprintln(m, "last")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	got := <-text
	var lost int
	if _, err := fmt.Sscanf(got[strings.LastIndex(got, long)+len(long):], "\n%d messages lost: nobody read them\nlast\n", &lost); err != nil {
		t.Fatal(err)
	}
	if kept := strings.Count(got, long); kept+lost != n {
		t.Errorf("%d kept and %d lost of %d", kept, lost, n)
	}
	fmt.Fprintln(m, "after the end")
}
