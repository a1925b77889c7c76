package boot

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
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
	clean := cleanMappings() // first, because it leaves garbage
	// A sync.Pool keeps its contents over one collection and releases them in the second.
	runtime.GC()
	debug.FreeOSMemory()
	for _, m := range clean {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a range of this process's memory.
type mapping struct{ start, end uintptr }

// cleanMappings returns the mappings of the program that hold its file's bytes and no others. A page that was written
// would lose its contents (madvise(2)), also where it can only be read now: the linker's relocated data (RELRO).
func cleanMappings() (all []mapping) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer smaps.Close()
	var m mapping
	clean := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		switch string(fields[0]) {
		default: // the first line of a mapping, or a line that does not matter
			if len(fields) >= 6 && string(fields[5]) == self && !bytes.ContainsRune(fields[1], 'w') {
				_, err := fmt.Sscanf(string(fields[0]), "%x-%x", &m.start, &m.end)
				clean = err == nil
			}
		case "Anonymous:", "Swap:": // the written pages
			clean = clean && string(fields[1]) == "0"
		case "VmFlags:": // the last line
			if clean {
				all = append(all, m)
			}
			clean = false
		}
	}
	return all
}
