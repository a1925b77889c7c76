package container

import (
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// verdicts runs a filter for the numbers of the machine's ABIs, with arguments that are zero, and returns the results.
func verdicts(t *testing.T, f *filter) map[[2]uint32]uint32 {
	t.Helper()
	program, out := instructions(f), make(map[[2]uint32]uint32)
	for abi, arch := range testedABIs() {
		for _, number := range numbers(abi) {
			out[[2]uint32{arch, number}] = evaluate(t, program, number, arch)
		}
	}
	return out
}

func instructions(f *filter) []unix.SockFilter {
	var all []unix.SockFilter
	for b := range slices.Chunk(f.program, unix.SizeofSockFilter) {
		all = append(all, unix.SockFilter{
			Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:]),
		})
	}
	return all
}

// evaluate is the part of seccomp's BPF machine that libseccomp uses.
func evaluate(t *testing.T, program []unix.SockFilter, nr, arch uint32) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		i := program[pc]
		jump := func(taken bool) {
			if taken {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = map[uint32]uint32{0: nr, 4: arch}[i.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= i.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > i.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&i.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d: unknown operation %#x", pc, i.Code)
		}
	}
	t.Fatal("filter ends without a verdict")
	return 0
}

func TestDefaultFilterIsCurrent(t *testing.T) {
	fresh, err := compileDefault(spec.DefaultCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(filterFile(), fresh.program, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if _, err := filters.ReadFile("filters/default_amd64.bpf"); err != nil {
		t.Fatalf("%v; make it with: go generate ./container", err)
	}
	used, err := defaultFilter(spec.DefaultCapabilities()) // compiled on an architecture without a file
	if err != nil {
		t.Fatal(err)
	}
	have, want := verdicts(t, used), verdicts(t, fresh)
	for call, verdict := range want {
		if have[call] != verdict {
			t.Errorf("ABI %#x call %#x: the embedded filter returns %#x, a fresh one %#x; regenerate it: go generate ./container",
				call[0], call[1], have[call], verdict)
		}
	}
}

func BenchmarkCompileDefault(b *testing.B) {
	for b.Loop() {
		if _, err := compileDefault(spec.DefaultCapabilities()); err != nil {
			b.Fatal(err)
		}
	}
}

// The list by which package plan knows system calls is the one of the library that compiles
// the filters.
func TestSyscallListIsCurrent(t *testing.T) {
	const list = "../plan/syscalls.txt"
	names := map[string]bool{}
	arches := []libseccomp.ScmpArch{
		libseccomp.ArchX86, libseccomp.ArchAMD64, libseccomp.ArchX32, libseccomp.ArchARM, libseccomp.ArchARM64, libseccomp.ArchMIPS,
		libseccomp.ArchMIPS64, libseccomp.ArchMIPS64N32, libseccomp.ArchPPC, libseccomp.ArchPPC64LE, libseccomp.ArchS390,
		libseccomp.ArchS390X, libseccomp.ArchPARISC, libseccomp.ArchRISCV64,
	}
	for _, arch := range arches {
		// MIPS has three ranges below 7000, x32 one of its own, and ARM some private calls.
		for _, first := range []int{0, 0x40000000, 0xf0000} {
			for number := first; number < first+7000; number++ {
				name, err := libseccomp.ScmpSyscall(number).GetNameByArch(arch)
				if err == nil {
					names[name] = true
				}
			}
		}
	}
	want := strings.Join(slices.Sorted(maps.Keys(names)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(list, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(have), "\n")); diff != "" {
		t.Errorf("%s is not current, run go generate ./container:\n%s", list, diff)
	}
}
