// Package procstat reads a process's line in /proc/PID/stat (proc_pid_stat(5)), the offset of its times, and the ID of
// the boot.
package procstat

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Stat has the fields of a process that the stager and the launcher use.
type Stat struct {
	State   byte   // field 3, for example 'R', or 'Z' for a zombie
	Parent  int    // field 4
	Session int    // field 6
	Flags   uint64 // field 9, see Exiting
	Threads int    // field 20
	Start   uint64 // field 22, clock ticks after boot
}

// exiting is PF_EXITING of the kernel's include/linux/sched.h.
const exiting = 0x4

// Exiting reports whether the process is ending. The kernel sets this before it closes the
// process's descriptors.
func (s Stat) Exiting() bool { return s.Flags&exiting != 0 }

// Ended reports whether the process is a zombie. A zombie with threads is alive: only its first thread has ended.
func (s Stat) Ended() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// Read returns the line of a process, in the PID namespace of /proc. Where there is no such process,
// the error wraps fs.ErrNotExist or, if it is reaped meanwhile, ESRCH.
func Read(pid int) (Stat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	s, err := parse(text)
	if err != nil {
		return Stat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

// BootID returns the ID of this boot of the machine; another boot has another ID.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(id), err
}

// BootOffset returns how much later than in the initial time namespace a process starts in this process's, in clock
// ticks (time_namespaces(7)).
func BootOffset() (int64, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	if err != nil {
		return 0, err
	}
	return bootOffset(string(text))
}

// bootOffset reads lines of a clock, seconds and nanoseconds.
func bootOffset(text string) (int64, error) {
	const ticks, tick = 100, 10_000_000 // USER_HZ, which is the same on every machine that Go supports
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "boottime" {
			continue
		}
		seconds, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/self/timens_offsets: %w", err)
		}
		nanoseconds, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/self/timens_offsets: %w", err)
		}
		return seconds*ticks + nanoseconds/tick, nil
	}
	return 0, errors.New("read /proc/self/timens_offsets: no line of boottime")
}

// parse reads the fields. The second one, the name in parentheses, may have any characters,
// and no later field has a parenthesis.
func parse(text []byte) (s Stat, err error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return s, fmt.Errorf("%d fields after the name, want 20", len(fields))
	}
	field := func(number int) string { return string(fields[number-3]) }
	s.State = field(3)[0]
	if s.Parent, err = strconv.Atoi(field(4)); err != nil {
		return s, fmt.Errorf("parent: %w", err)
	}
	if s.Session, err = strconv.Atoi(field(6)); err != nil {
		return s, fmt.Errorf("session: %w", err)
	}
	if s.Flags, err = strconv.ParseUint(field(9), 10, 64); err != nil {
		return s, fmt.Errorf("flags: %w", err)
	}
	if s.Threads, err = strconv.Atoi(field(20)); err != nil {
		return s, fmt.Errorf("threads: %w", err)
	}
	if s.Start, err = strconv.ParseUint(field(22), 10, 64); err != nil {
		return s, fmt.Errorf("start time: %w", err)
	}
	return s, nil
}
