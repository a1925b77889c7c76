package thread

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// A thread with a table of its own has the kept descriptor alone, whose end comes with the thread's, and the Go runtime
// goes on to use the thread: it ends the program when it cannot wake its poller by it.
func TestAThreadKeepsFewFiles(t *testing.T) {
	surroundings.Root(t)
	for range 20 {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		result, own, closed := make(chan error, 1), make(chan struct{}), make(chan struct{})
		kept, other := int(write.Fd()), int(read.Fd())
		Go(func() {
			err := CloseFiles(kept)
			own <- struct{}{}
			<-closed
			if _, missing := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); missing != unix.EBADF {
				err = errors.Join(err, errors.New("the thread has the pipe's other end"))
			}
			for range 100 {
				<-time.After(time.Microsecond)
			}
			_, writeErr := unix.Write(kept, []byte("x"))
			result <- errors.Join(err, writeErr)
		})
		<-own
		write.Close()
		close(closed)
		if err := <-result; err != nil {
			t.Error(err)
		}
		if err := read.SetReadDeadline(time.Now().Add(surroundings.Patience)); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(read); string(text) != "x" || err != nil {
			t.Errorf("the thread has written %q, %v", text, err)
		}
		read.Close()
	}
}
