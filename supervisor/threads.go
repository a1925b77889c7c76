package supervisor

import (
	"runtime"
	"sync"
)

// spareThreads are for what waits in the kernel beside starts: commands, the Go runtime's own work, an app's files
// that do not answer.
const spareThreads = 8

// ReserveThreads makes threads that the Go runtime keeps, and uses before it makes another one: enough for as many
// starts of a number of apps as there may be at once, each of which may hold a thread in the kernel, and a second one
// for the container's mounts. It is called before apps run: they can use up all tasks of a cgroup around theirs and
// the supervisor's, which it may not even see, and the Go runtime ends a program that cannot make the thread that it
// needs. Without the threads it does in one of ten runs of TestTheSupervisorOutlivesAFullCgroupAroundIt.
func ReserveThreads(apps int) {
	threads := 2*min(apps, parallelStarts) + spareThreads
	var locked, done sync.WaitGroup
	locked.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait() // each has a thread of its own now
		})
	}
	done.Wait()
}
