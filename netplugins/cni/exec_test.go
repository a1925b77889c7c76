package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The calls that wait for the lock have it one after the other, in the order in which they came.
func TestTheTablesLockHasAQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	const calls = 8
	order, ended := make(chan int, calls), make(chan error, calls)
	for i := range calls {
		go func() {
			file, err := lock(t.Context(), path)
			order <- i
			ended <- errors.Join(err, file.Close())
		}()
		awaitWaiting(t, path, i+1)
	}
	impatient, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time left"))
	if file, err := lock(impatient, path); err == nil || !strings.Contains(err.Error(), "no time left") {
		t.Errorf("a call without time: %v, %v", file, err)
	}
	if len(order) > 0 {
		t.Errorf("call %d has gone on without the lock", <-order)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range calls {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		got = append(got, <-order)
	}
	if !slices.IsSorted(got) {
		t.Errorf("the calls had the lock in the order %v", got)
	}
}

// awaitWaiting waits until as many calls wait for the lock of a file, as the kernel lists them (proc_locks(5)).
func awaitWaiting(t *testing.T, path string, calls int) {
	t.Helper()
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprintf(":%d ", file.Ino)
	for late := time.Now().Add(10 * time.Second); ; {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
				waiting++
			}
		}
		if waiting == calls {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d calls wait in the kernel, want %d:\n%s", waiting, calls, locks)
		}
	}
}
