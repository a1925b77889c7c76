package boot

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// endedInit is an init that has been killed.
type endedInit struct{ fakeInit }

var errEnded = errors.New("init has ended")

func (endedInit) Up() error { return errEnded }

// End of file on the ready pipe says that the pod is up.
func TestAPodWithoutInitDoesNotCloseItsReadyPipe(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	events, err := openEvents(filepath.Join(t.TempDir(), "events"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &Pod{Parts: Parts{Log: slog.New(slog.DiscardHandler), Init: endedInit{}, Inherited: Inherited{Ready: write}}, events: events}
	if err := p.ready(); !errors.Is(err, errEnded) {
		t.Errorf("%v, want %v", err, errEnded)
	}
	if _, err := write.Write([]byte("x")); err != nil {
		t.Errorf("the pipe is closed: %v", err)
	}
	if err := events.close(); err != nil {
		t.Error(err)
	}
}
