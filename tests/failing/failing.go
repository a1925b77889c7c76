// Package failing makes system calls fail, to test what a program does then.
package failing

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call, by its number and the low halves of those of its arguments that Args lists by their place.
type Call struct {
	Number uint32
	Args   map[int]uint32
	Errno  unix.Errno // EPERM if it is 0
	Silent bool       // the call does nothing, and the program is told that it has succeeded
}

// Fail has the call fail in this thread, which the caller has locked, and in processes that it starts from
// now on, whatever they execute (seccomp(2)).
func (c Call) Fail() error {
	const number, args = 0, 16 // offsets in struct seccomp_data
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	program := []unix.SockFilter{load(number), {K: c.Number}}
	for place, value := range c.Args {
		program = append(program, load(args+8*place), unix.SockFilter{K: value})
	}
	for i := range program {
		if i%2 == 1 { // on to the next comparison, or to the last line
			program[i].Code, program[i].Jf = unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint8(len(program)-i)
		}
	}
	errno := uint32(cmp.Or(c.Errno, unix.EPERM))
	if c.Silent {
		errno = 0
	}
	program = slices.Concat(program, []unix.SockFilter{
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	})
	text := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&text))); errno != 0 {
		return fmt.Errorf("load filter: %w", errno)
	}
	return nil
}
