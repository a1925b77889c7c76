package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// lock locks a pipe as an app can, until the returned function is called: splice(2) waits for a terminal, and holds the
// pipe's lock.
func lock(t *testing.T, f *os.File) (unlock func()) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = unix.Splice(int(slave.Fd()), nil, int(f.Fd()), nil, 1, 0)
	}()
	surroundings.Eventually(t, "the pipe is locked", func() bool { return isInSplice(t) })
	return func() {
		_ = master.Close() // the terminal's reader gets its end
		<-done
		_ = slave.Close()
	}
}

// isInSplice reports whether a thread of this program is in splice(2).
func isInSplice(t *testing.T) bool {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		call, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/syscall") // the thread may have ended
		if strings.HasPrefix(string(call), "275 ") {
			return true
		}
	}
	return false
}

// An app that has locked its output holds up no other app's.
func TestAnAppThatLocksItsOutputHoldsUpNoOther(t *testing.T) {
	c := newCollector(t)
	var logged, other log
	hostile, neighbour := open(t, c, Options{Stdout: &logged}), open(t, c, Options{Stdout: &other})
	locked, stdout := held(t, hostile.Stdout), held(t, neighbour.Stdout)
	for _, s := range []*Streams{hostile, neighbour} {
		defer held(t, s.Stderr).Close()
	}
	hostile.Started()
	neighbour.Started()
	surroundings.Eventually(t, "all wait", func() bool { return goroutinesIn("output.(*poller).awaitSignal") == 4 })
	unlock := lock(t, locked)
	for range 3 {
		write(t, stdout, "line\n")
		surroundings.Eventually(t, "the neighbour's line is logged", func() bool {
			other.mu.Lock()
			defer other.mu.Unlock()
			return strings.HasSuffix(other.text.String(), "line\n")
		})
		other.mu.Lock()
		other.text.Reset()
		other.mu.Unlock()
		surroundings.Eventually(t, "the neighbour waits again", func() bool { return goroutinesIn("output.(*poller).awaitSignal") == 4 })
	}
	unlock()
	if err := stdout.Close(); err != nil {
		t.Error(err)
	}
	_ = locked.Close()
	hostile.Finish()
	neighbour.Finish()
}

// An app that has locked its stdin holds up no attachment, and takes one thread for all of them.
func TestAnAppThatLocksItsStdinHoldsNoAttachment(t *testing.T) {
	s := open(t, newCollector(t), Options{OpenStdin: true})
	theirs := held(t, s.Stdin)
	s.Started()
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", theirs.Fd()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, again)
	for range 3 {
		a, err := s.Attach()
		if err != nil {
			t.Fatal(err)
		}
		write(t, a.Stdin, "text")
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		<-a.Done()
	}
	surroundings.Eventually(t, "one thread writes", func() bool {
		return goroutinesIn("output.put") == 1 && goroutinesIn("output.(*relay).takeTurn") == 0
	})
	unlock()
	_ = again.Close()
	s.Finish()
	text, err := io.ReadAll(theirs)
	if err != nil || !strings.HasPrefix(string(text), "text") {
		t.Errorf("%q, %v", text, err)
	}
	_ = theirs.Close()
}

// What was typed before an attachment's end goes to the app also when another attachment's text is still on its way.
func TestTextOfAnEndedAttachmentWaitsForItsTurn(t *testing.T) {
	s := open(t, newCollector(t), Options{OpenStdin: true})
	theirs := held(t, s.Stdin)
	s.Started()
	first := strings.Repeat("1", 1<<20)
	var typists sync.WaitGroup
	for i, text := range []string{first, "2"} {
		a, err := s.Attach()
		if err != nil {
			t.Fatal(err)
		}
		stdin := held(t, a.Stdin)
		typists.Go(func() {
			defer stdin.Close()
			write(t, stdin, text)
		})
		if i == 0 {
			surroundings.Eventually(t, "the app's stdin is full", func() bool { return unread(int(theirs.Fd())) == 64<<10 })
			defer a.Close()
			continue
		}
		surroundings.Eventually(t, "the second waits", func() bool { return goroutinesIn("output.(*relay).takeTurn") == 1 })
		a.Close()
	}
	text := make([]byte, len(first)+1)
	if _, err := io.ReadFull(theirs, text); err != nil || !strings.Contains(string(text), "2") {
		t.Errorf("%d bytes of the second, %v", strings.Count(string(text), "2"), err)
	}
	typists.Wait()
	s.Finish()
	_ = theirs.Close()
}
