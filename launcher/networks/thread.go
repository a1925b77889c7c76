package networks

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs do in the background on a thread of its own, which ends with do: do may
// move the thread to other namespaces and need not move it back. The thread is never the
// main thread, which cannot end and which /proc/self stands for.
func OnOwnThread(do func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			do() // never unlocked: the runtime ends the thread
			return
		}
		// While this goroutine holds the main thread, the next one cannot get it.
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
