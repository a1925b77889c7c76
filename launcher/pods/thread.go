package pods

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs do in the background on a thread of its own, which ends
// with it: do may move the thread to other namespaces and need not clean up.
// It is never the process's main thread, which cannot end and is what
// /proc/self shows to everyone.
func onOwnThread(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do() // never unlocked: the runtime ends the thread
			return
		}
		// Held here, the main thread cannot be the next goroutine's.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			do()
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}
