package container

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// truePlan is a plan for a program that succeeds.
func truePlan() *shimPlan {
	return &shimPlan{dir: "/", candidates: []string{"/bin/true"}, args: []string{"true"}, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}}
}

// call is a system call, and if it is not 0 its first argument.
type call struct{ number, first uint32 }

// runFailing is runShim in a process whose system call fails with EPERM. A zero call fails nowhere.
func runFailing(t *testing.T, plan *shimPlan, fails call) (report []byte, code int) {
	t.Helper()
	text, err := plan.encode()
	if err != nil {
		t.Fatal(err)
	}
	if fails.number == 0 {
		return runShim(t, "3", text)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		if err := failCall(fails); err != nil {
			t.Error(err)
			return
		}
		report, code = runShim(t, "3", text)
	}()
	<-done
	return report, code
}

// failCall loads a filter by which a system call of this thread and its children fails (seccomp(2)).
func failCall(fails call) error {
	const number, first = 0, 16 // offsets in struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	deny := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	allow := unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}
	program := []unix.SockFilter{load(number), unless(fails.number, 1), deny, allow}
	if fails.first != 0 {
		program = []unix.SockFilter{load(number), unless(fails.number, 3), load(first), unless(fails.first, 1), deny, allow}
	}
	text := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&text))); errno != 0 {
		return fmt.Errorf("load filter: %w", errno)
	}
	return nil
}

// A step that the kernel refuses ends the shim, before the program: it would run with more than it may.
func TestShimStopsWhereTheKernelRefuses(t *testing.T) {
	landlock := func(p *shimPlan) { p.flags = shimLandlock }
	for name, test := range map[string]struct {
		fails  call
		change func(*shimPlan)
		step   string
	}{
		"capget":                  {call{number: unix.SYS_CAPGET}, nil, "set capabilities"},
		"capset":                  {call{number: unix.SYS_CAPSET}, nil, "set capabilities"},
		"keep capabilities":       {call{unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS}, nil, "set capabilities"},
		"drop capabilities":       {call{unix.SYS_PRCTL, unix.PR_CAPBSET_DROP}, nil, "drop capabilities"},
		"setresuid":               {call{number: unix.SYS_SETRESUID}, nil, "set user"},
		"setresgid":               {call{number: unix.SYS_SETRESGID}, nil, "set groups"},
		"no new privileges":       {call{unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS}, func(p *shimPlan) { p.flags = shimNoNewPrivs }, "set no_new_privs"},
		"landlock_create_ruleset": {call{number: unix.SYS_LANDLOCK_CREATE_RULESET}, landlock, "enter Landlock domain"},
		"landlock_add_rule":       {call{number: unix.SYS_LANDLOCK_ADD_RULE}, landlock, "enter Landlock domain"},
		"landlock_restrict_self":  {call{number: unix.SYS_LANDLOCK_RESTRICT_SELF}, landlock, "enter Landlock domain"},
		"getcwd":                  {call{number: unix.SYS_GETCWD}, nil, "step 10"}, // SHIM_CHDIR
		"chdir":                   {call{number: unix.SYS_CHDIR}, nil, "step 10"},
	} {
		plan := truePlan()
		if test.change != nil {
			test.change(plan)
		}
		report, code := runFailing(t, plan, test.fails)
		if len(report) != 8 || shimStep(binary.NativeEndian.Uint32(report)) != test.step || binary.NativeEndian.Uint32(report[4:]) != uint32(unix.EPERM) || code != 126 {
			t.Errorf("%s fails: the shim reports %v and ends with %d, want EPERM of %q", name, report, code, test.step)
		}
	}
}

// The working directory may be closed to the user, or to root without capabilities: one of them enters it.
// A directory that is closed to both stays closed, whatever capabilities the shim still has, and
// it keeps those that it needs afterwards.
func TestShimEntersADirectoryAsRootOrAsTheUser(t *testing.T) {
	roots, users, others := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, uid := range map[string]int{roots: 0, users: 65534, others: 1} {
		for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o711} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]int{"/": 0, roots: 0, users: 0, others: 126} {
		plan := truePlan()
		plan.dir, plan.uid, plan.gid, plan.groups = dir, 65534, 65534, []uint32{1}
		if report, code := runFailing(t, plan, call{}); code != want || (len(report) == 0) != (want == 0) {
			t.Errorf("%s: the shim reports %v and ends with %d", dir, report, code)
		}
	}
}

// The program has the descriptors that the plan leaves it, and none of the shim's, also on a kernel without
// close_range(2).
func TestTheProgramHasNoneOfTheShimsDescriptors(t *testing.T) {
	for _, fails := range []call{{}, {number: unix.SYS_CLOSE_RANGE}} {
		for nfds, script := range []string{"[ ! -e /proc/self/fd/3 ]", "[ -e /proc/self/fd/3 ]"} {
			plan := truePlan()
			plan.nfds = uint32(nfds)
			plan.candidates, plan.args = []string{"/bin/sh"}, []string{"sh", "-c", script + " && [ ! -e /proc/self/fd/4 ] && [ ! -e /proc/self/fd/5 ]"}
			if report, code := runFailing(t, plan, fails); len(report) != 0 || code != 0 {
				t.Errorf("call %d fails, %d descriptors: the shim reports %v and the program ends with %d", fails.number, nfds, report, code)
			}
		}
	}
}
