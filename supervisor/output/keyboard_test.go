package output

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"github.com/creack/pty"
)

// goroutinesIn returns how many goroutines are in a function.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function+"(")
}

// An attachment to a terminal whose app never reads ends with what was typed and not read.
func TestATerminalThatIsNotReadHoldsNoAttachment(t *testing.T) {
	s := open(t, newCollector(t), Options{Terminal: true})
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	s.Console <- master
	s.Started()
	for range 2 {
		a, err := s.Attach()
		if err != nil {
			t.Fatal(err)
		}
		stdin, typed := held(t, a.Stdin), make(chan error, 1)
		go func() { // ends with an error when the attachment does
			_, err := io.WriteString(stdin, strings.Repeat("line\n", 1<<20))
			typed <- err
		}()
		surroundings.Eventually(t, "the terminal is full", func() bool { return goroutinesIn("output.(*Attachment).typeIn") == 1 && isFull(slave) })
		a.Close()
		surroundings.Eventually(t, "the attachment's goroutine has ended", func() bool { return goroutinesIn("output.(*Attachment).typeIn") == 0 })
		if err := <-typed; err == nil {
			t.Error("the app's terminal took all")
		}
	}
	s.Finish()
}

// isFull reports whether an app's terminal has what a person can type into it: it takes no more.
func isFull(slave *os.File) bool {
	return unread(int(slave.Fd())) > 0 && goroutinesIn("poll.(*FD).Write") > 0
}
