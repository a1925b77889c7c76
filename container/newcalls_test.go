package container

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

const (
	answerAllow  = unix.SECCOMP_RET_ALLOW
	answerENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	x32Bit       = 0x40000000
)

// profile2019 is a profile of the time before clone3(2), with a rule of another action than "allow" for a call of each kind:
// the highest number of the profile is one that the profile blocks.
func profile2019() string {
	allowed := slices.DeleteFunc(containertest.Syscalls(), func(name string) bool { return name == "clone3" || name == "rseq" })
	return `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
		{"names": ["` + strings.Join(allowed, `", "`) + `", "execve"], "action": "SCMP_ACT_ALLOW"},
		{"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
		{"names": ["io_pgetevents"], "action": "SCMP_ACT_ERRNO"}]}`
}

// blocking are filters that block what they do not list, and the calls that they list.
func blocking(t *testing.T) map[string]struct {
	filter spec.Seccomp
	listed []string
} {
	t.Helper()
	set := spec.SyscallSet{Retain: true, Syscalls: containertest.Syscalls(), Errno: unix.EXFULL}
	killing := spec.SyscallSet{Retain: true, Syscalls: containertest.Syscalls()}
	own, err := seccomp.LoadProfile(profile2019(), bounded(nil))
	if err != nil {
		t.Fatal(err)
	}
	standard, err := seccomp.GetDefaultProfile(bounded(spec.DefaultCapabilities()))
	if err != nil {
		t.Fatal(err)
	}
	var ownNames, standardNames []string
	for _, rule := range own.Syscalls {
		ownNames = append(ownNames, rule.Names...)
	}
	for _, rule := range standard.Syscalls {
		standardNames = append(standardNames, rule.Names...)
	}
	return map[string]struct {
		filter spec.Seccomp
		listed []string
	}{
		"default":                  {spec.Seccomp{}, standardNames},
		"profile":                  {spec.Seccomp{Kind: spec.SeccompProfile, Profile: profile2019()}, ownNames},
		"retain-set":               {filterOf(set), set.Names()},
		"retain-set without errno": {filterOf(killing), killing.Names()},
	}
}

// numbers are the system call numbers that the tests try in an ABI: all that a call of today has, some hundred more, and
// the ends of the tables. In the ABI x86_64 the numbers of x32 are not among them.
func numbers(abi libseccomp.ScmpArch) []uint32 {
	base, last := uint32(0), uint32(math.MaxUint32)
	switch abi {
	case libseccomp.ArchAMD64:
		last = x32Bit - 1
	case libseccomp.ArchX32:
		base = x32Bit
	}
	all := []uint32{last - 1, last}
	for n := range uint32(1200) {
		all = append(all, base+n)
	}
	if abi == libseccomp.ArchARM {
		for n := range uint32(16) {
			all = append(all, 0xf0000+n)
		}
	}
	return all
}

// newerThan returns the rule of the filters: whether a number is above all numbers of the listed calls in its ABI. The
// numbers from 512 on of x32, and the private ones of ARM, are an ABI of their own.
func newerThan(abi libseccomp.ScmpArch, listed []string) func(number uint32) bool {
	part := func(number uint32) int {
		if abi == libseccomp.ArchX32 && number >= x32Bit+512 || abi == libseccomp.ArchARM && number >= 0xf0000 {
			return 1
		}
		return 0
	}
	var highest [2]int64
	for _, name := range listed {
		if n, err := libseccomp.GetSyscallFromNameByArch(name, abi); err == nil && n >= 0 {
			highest[part(uint32(n))] = max(highest[part(uint32(n))], int64(n))
		}
	}
	return func(number uint32) bool { return int64(number) > highest[part(number)] }
}

// testedABIs are those of the machine, with their names in testdata/calls.c, and the numbers of their kind of machine.
func testedABIs() map[libseccomp.ScmpArch]uint32 {
	if runtime.GOARCH == "arm64" {
		return map[libseccomp.ScmpArch]uint32{libseccomp.ArchARM64: unix.AUDIT_ARCH_AARCH64, libseccomp.ArchARM: unix.AUDIT_ARCH_ARM}
	}
	return map[libseccomp.ScmpArch]uint32{
		libseccomp.ArchAMD64: unix.AUDIT_ARCH_X86_64, libseccomp.ArchX32: unix.AUDIT_ARCH_X86_64, libseccomp.ArchX86: unix.AUDIT_ARCH_I386,
	}
}

// Every call above the highest number that a filter lists has the answer ENOSYS, and each other call the answer that
// libseccomp alone gives.
func TestNewCallsAreNotImplemented(t *testing.T) {
	clause.Covers(t, "C-SEC-02")
	for name, f := range blocking(t) {
		t.Run(name, func(t *testing.T) {
			program := programOf(t, f.filter)
			alone := program
			for len(alone) > 6 && alone[5] == (unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: answerENOSYS}) {
				alone = alone[6:] // a table's part of refuseNewCalls
			}
			for abi, arch := range testedABIs() {
				newer, refused := newerThan(abi, f.listed), 0
				for _, number := range numbers(abi) {
					want := evaluate(t, alone, number, arch)
					if newer(number) {
						want = answerENOSYS
						refused++
					}
					if answer := evaluate(t, program, number, arch); answer != want {
						t.Errorf("%v %#x: got %#x, want %#x", abi, number, answer, want)
					}
				}
				if refused < 600 {
					t.Errorf("%v: only %d calls are new", abi, refused)
				}
			}
		})
	}
}

func programOf(t *testing.T, s spec.Seccomp) []unix.SockFilter {
	t.Helper()
	f, err := new(filterCache).of(&spec.Process{Seccomp: s, Capabilities: spec.DefaultCapabilities()})
	if err != nil {
		t.Fatal(err)
	}
	return instructions(f)
}

// A filter that does not block what it does not list, or that lists no call at all, has no new calls.
func TestFiltersWithoutNewCalls(t *testing.T) {
	for name, c := range map[string]struct {
		filter spec.Seccomp
		want   uint32
	}{
		"remove-set": {filterOf(spec.SyscallSet{Syscalls: []string{"getppid"}, Errno: unix.EPERM}), answerAllow},
		"allow":      {profileWith("SCMP_ACT_ALLOW", `"names": ["getppid"], "action": "SCMP_ACT_ERRNO"`), answerAllow},
		"log":        {profileWith("SCMP_ACT_LOG", `"names": ["getppid"], "action": "SCMP_ACT_ERRNO"`), unix.SECCOMP_RET_LOG},
		"trace":      {profileWith("SCMP_ACT_TRACE", `"names": ["getppid"], "action": "SCMP_ACT_ALLOW"`), unix.SECCOMP_RET_TRACE | uint32(unix.EPERM)},
		"empty":      {profileWith("SCMP_ACT_ERRNO", `"names": [], "action": "SCMP_ACT_ALLOW"`), unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	} {
		t.Run(name, func(t *testing.T) {
			for abi, arch := range testedABIs() {
				all := numbers(abi)
				if got := evaluate(t, programOf(t, c.filter), all[len(all)-1], arch); got != c.want {
					t.Errorf("%v: got %#x, want %#x", abi, got, c.want)
				}
			}
		})
	}
}

func profileWith(action, rule string) spec.Seccomp {
	return spec.Seccomp{Kind: spec.SeccompProfile, Profile: `{"defaultAction": "` + action + `", "syscalls": [{` + rule + `}]}`}
}

// A call by an ABI that a profile does not name ends the process, also if it is new.
func TestNewCallsOfAnotherABIAreKilled(t *testing.T) {
	f := programOf(t, spec.Seccomp{Kind: spec.SeccompProfile, Profile: strings.Replace(profile2019(), "{",
		`{"architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"], `, 1)})
	for abi, arch := range testedABIs() {
		want := uint32(unix.SECCOMP_RET_KILL_PROCESS)
		if abi == libseccomp.ArchAMD64 || abi == libseccomp.ArchARM64 {
			want = answerENOSYS
		}
		all := numbers(abi)
		if got := evaluate(t, f, all[len(all)-1]-1, arch); got != want {
			t.Errorf("%v: got %#x, want %#x", abi, got, want)
		}
	}
}

// The kernel gives an app that either runtime has started the answers of the program, for every call that the filter
// answers with an error.
func TestKernelAnswersEachCallByTheRule(t *testing.T) {
	clause.Covers(t, "C-SEC-07")
	root := callsRoot(t)
	ways := map[libseccomp.ScmpArch]string{libseccomp.ArchAMD64: "native", libseccomp.ArchX32: "native"}
	if runtime.GOARCH == "arm64" {
		ways = map[libseccomp.ScmpArch]string{libseccomp.ArchARM64: "native"}
	}
	if runsI386(t, root) {
		ways[libseccomp.ArchX86] = "i386"
	}
	r := newRuntime(t)
	for name, f := range blocking(t) {
		program := programOf(t, f.filter)
		var args, want []string
		for abi, way := range ways {
			for _, number := range numbers(abi) {
				answer := evaluate(t, program, number, testedABIs()[abi])
				uprobes := abi == libseccomp.ArchAMD64 && (number == 335 || number == 336) // the kernel asks no filter
				if answer&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO && !uprobes {
					args = append(args, fmt.Sprint(way, ":", number))
					want = append(want, fmt.Sprintf("%s -%d", args[len(args)-1], answer&unix.SECCOMP_RET_DATA))
				}
			}
		}
		s := testSpec(root, append([]string{"/calls"}, args...)...)
		s.Process.Seccomp = f.filter
		text, status := output(t, r, s)
		have := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(have) != len(want) || status.ExitStatus() != 0 {
			t.Fatalf("%s: %d of %d answers, status %#x", name, len(have), len(want), status)
		}
		for i, line := range have {
			if line != want[i] {
				t.Errorf("%s: got %q, want %q", name, line, want[i])
			}
		}
	}
}
