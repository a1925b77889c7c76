package supervisor

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"
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
	surroundings.Eventually(t, "the queue is empty", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.queue) == 0
	})
	fmt.Fprintln(m, "last")
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	got := <-text
	if !strings.HasSuffix(got, "stderr was not read in time\nlast\n") {
		t.Errorf("end %q", got[max(0, len(got)-100):])
	}
	lost := 0
	for _, match := range regexp.MustCompile(`(?m)^(\d+) messages lost`).FindAllStringSubmatch(got, -1) {
		n, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		lost += n
	}
	if kept := strings.Count(got, long); kept+lost != n {
		t.Errorf("%d kept and %d lost of %d", kept, lost, n)
	}
	fmt.Fprintln(m, "after the end")
}
