package container

import (
	"encoding/binary"
	"math"
	"runtime"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// callTable is a range of system call numbers of an ABI. The kernel gives a new call the number after the range's last.
type callTable struct {
	abi         libseccomp.ScmpArch
	arch        uint32 // in struct seccomp_data
	first, last uint32
}

// callTables returns the tables of the ABIs that this machine's kernel may execute.
func callTables() []callTable {
	switch runtime.GOARCH {
	case "amd64":
		const x32 = 0x40000000 // __X32_SYSCALL_BIT
		return []callTable{
			{libseccomp.ArchAMD64, unix.AUDIT_ARCH_X86_64, 0, x32 - 1},
			{libseccomp.ArchX86, unix.AUDIT_ARCH_I386, 0, math.MaxUint32},
			// The x32 calls of another type than x86_64's have numbers from 512 on.
			{libseccomp.ArchX32, unix.AUDIT_ARCH_X86_64, x32, x32 + 511},
			{libseccomp.ArchX32, unix.AUDIT_ARCH_X86_64, x32 + 512, math.MaxUint32},
		}
	case "arm64":
		const private = 0xf0000 // __ARM_NR_BASE
		return []callTable{
			{libseccomp.ArchARM64, unix.AUDIT_ARCH_AARCH64, 0, math.MaxUint32},
			{libseccomp.ArchARM, unix.AUDIT_ARCH_ARM, 0, private - 1},
			{libseccomp.ArchARM, unix.AUDIT_ARCH_ARM, private, math.MaxUint32},
		}
	}
	return nil
}

// refuseNewCalls returns the begin of a seccomp program: a call that is newer than all calls of names in its table
// fails with ENOSYS, as on a kernel without the call; for any other the program goes on behind the returned
// instructions. C libraries try an older call only after ENOSYS. An ABI without any call of names is left to the rest
// of the program. runc has the same rule, but for an ABI as a whole: among the calls of x32, and of ARM, it would find
// none that is new.
func refuseNewCalls(tables []callTable, names []string) []byte {
	var program []byte
	for _, t := range tables {
		if numbers := numbersOf(t.abi, names); len(numbers) > 0 {
			program = t.refuseAfter(numbers, program)
		}
	}
	return program
}

// numbersOf returns the numbers of the names' calls in an ABI. A call that the ABI lacks has no number, or a negative
// one.
func numbersOf(abi libseccomp.ScmpArch, names []string) []uint32 {
	var numbers []uint32
	for _, name := range names {
		if n, err := libseccomp.GetSyscallFromNameByArch(name, abi); err == nil && n >= 0 {
			numbers = append(numbers, uint32(n))
		}
	}
	return numbers
}

// refuseAfter appends the instructions for the table's calls after the last of the numbers in it.
func (t callTable) refuseAfter(numbers []uint32, program []byte) []byte {
	next := t.first
	for _, n := range numbers {
		if n <= t.last {
			next = max(next, n+1)
		}
	}
	const arch, number = 4, 0 // offsets in struct seccomp_data
	for _, i := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: t.arch, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: t.last, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: next, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	} {
		program = binary.NativeEndian.AppendUint16(program, i.Code)
		program = binary.NativeEndian.AppendUint32(append(program, i.Jt, i.Jf), i.K)
	}
	return program
}
