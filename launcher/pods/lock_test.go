package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process that holds the store's lock for good holds nobody up for good.
func TestTheStoresLockIsAwaitedWithALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		t.Helper()
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	held := open()
	if err := flock(held, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := flock(open(), time.Millisecond); err == nil || !strings.HasPrefix(err.Error(), path+": another process has held the lock") {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	// Who has given up keeps no lock.
	free := open()
	defer free.Close()
	if err := flock(free, time.Minute); err != nil {
		t.Error(err)
	}
}
