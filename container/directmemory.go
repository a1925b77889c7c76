package container

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryRange is a part of the address space.
type memoryRange struct{ start, end uint64 }

func (r memoryRange) advise(advice int) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(r.start), uintptr(r.end-r.start), uintptr(advice))
}

// leaveMemoryOut has the next fork not get the memory of the Go runtime and of threads other than the forking one,
// whose stack has the address. The kernel would copy its page tables at the fork, and each of its pages that the
// supervisor writes before the child's exec: a fifth of the CPU time of a start, and a third of the time until fifty
// apps run. An error costs only that.
func leaveMemoryOut(stack uint64) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	spare, own := spareMemory(string(maps), stack)
	for _, r := range spare {
		r.advise(unix.MADV_DONTFORK)
	}
	own.advise(unix.MADV_DOFORK) // another forker may have left it out
}

// spareMemory returns what a statically linked program has mapped since its start, by /proc/PID/maps, and apart from
// it the mapping with the address stack. It returns nothing for a program with shared libraries: their loader has
// mapped memory too, which the child needs.
func spareMemory(maps string, stack uint64) (spare []memoryRange, own memoryRange) {
	var program string
	var programEnd uint64 // the program's zeroed data follows its file
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			return nil, memoryRange{}
		}
		name := ""
		if len(fields) > 5 && fields[5] != "[anon:" { // a name that the Go runtime gives (prctl(2), PR_SET_VMA)
			name = fields[5]
		}
		switch {
		case strings.HasPrefix(name, "/"):
			if program != "" && name != program {
				return nil, memoryRange{}
			}
			program, programEnd = name, end
		case start <= stack && stack < end:
			own = memoryRange{start, end}
		case name == "" && start != programEnd:
			spare = append(spare, memoryRange{start, end})
		}
	}
	return spare, own
}
