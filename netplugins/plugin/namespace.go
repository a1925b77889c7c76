package plugin

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs do on a thread in the pod's network namespace. do must not start goroutines or
// processes that have to be in the namespace.
func (p Pod) In(do func() error) error {
	file, err := os.Open(p.Namespace)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer file.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked, except the first thread: the runtime ends the thread
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and would stay in the pod's namespace, as /proc/self. While this goroutine holds
			// it, no other one gets it.
			defer runtime.UnlockOSThread()
			done <- p.In(do)
			return
		}
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", p.Namespace, err)
			return
		}
		done <- do()
	}()
	return <-done
}
