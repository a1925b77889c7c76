package boot

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fifo makes a FIFO, and the daemon's end of it.
func fifo(t *testing.T) (path string, daemon *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	daemon, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Close() })
	return path, daemon
}

func TestNetworksAreWaitedFor(t *testing.T) {
	none, err := watchFIFO(filepath.Join(t.TempDir(), "fifo"))
	if err != nil || none.wait(t.Context()) != nil {
		t.Errorf("without a FIFO: %v", err)
	}

	path, daemon := fifo(t)
	n, err := watchFIFO(path)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the byte: %v", err)
	}
	if _, err := daemon.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.wait(t.Context()); err != nil {
			t.Errorf("after the byte: %v", err)
		}
	}
}

// The byte may come before the stager opens the FIFO.
func TestNetworksMayBeThereAlready(t *testing.T) {
	path, daemon := fifo(t)
	if _, err := daemon.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	n, err := watchFIFO(path)
	if err != nil || n.wait(t.Context()) != nil {
		t.Errorf("%v", err)
	}
}

func TestADaemonThatIsGoneConnectsNoNetworks(t *testing.T) {
	path, daemon := fifo(t)
	n, err := watchFIFO(path)
	if err != nil {
		t.Fatal(err)
	}
	daemon.Close()
	if err := n.wait(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
}
