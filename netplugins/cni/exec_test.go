package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// A child that a plugin leaves behind, with the plugin's output or without, does not hold up other calls, and fails none.
func TestTheTablesLockIsFreeAfterAPlugin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bridge")
	for name, script := range map[string]string{
		"success": "sleep 1000 & echo $! >>%s; echo {}",
		"failure": "sleep 1000 >/dev/null 2>&1 & echo $! >>%s; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			children := filepath.Join(t.TempDir(), "children")
			if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n"+script+"\n", children), 0o700); err != nil {
				t.Fatal(err)
			}
			defer killAll(t, children)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for range 2 {
				_, err := (&executor{}).ExecPlugin(ctx, path, nil, []string{"CNI_COMMAND=ADD"})
				if failed := err != nil; failed != (name == "failure") || ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// killAll ends the processes whose numbers are the lines of a file.
func killAll(t *testing.T, path string) {
	t.Helper()
	numbers, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	for _, number := range strings.Fields(string(numbers)) {
		pid, err := strconv.Atoi(number)
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Errorf("kill %q: %v", number, err)
		}
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
