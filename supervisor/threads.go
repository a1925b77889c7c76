package supervisor

import (
	"runtime"
	"sync"
)

// spareThreads are enough for as many starts as there may be at once, each of which holds a thread, and for what else
// waits in the kernel.
const spareThreads = parallelStarts + 4

// ReserveThreads makes threads that the Go runtime keeps, and uses before it makes another one. It is called before
// apps run: they can use up all tasks of a cgroup around theirs and the supervisor's, which it may not even
// see, and the Go runtime ends a program that cannot make the thread that it needs.
func ReserveThreads() {
	var locked, done sync.WaitGroup
	locked.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait() // each has a thread of its own now
		})
	}
	done.Wait()
}
