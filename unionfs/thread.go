package unionfs

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// onThread runs do on a new thread, which ends afterwards, so that changes to the thread end with it.
// It never uses the process's first thread: that cannot end, and /proc/PID/cwd shows its directory.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- onThread(do)
			runtime.UnlockOSThread()
			return
		}
		result <- do() // still locked: the thread ends with the goroutine
	}()
	return <-result
}

func shortNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}
