package container

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// The shim keeps an app's other processes from reading it from its first step on: the
// kernel makes root the owner of such a process's files in /proc (proc(5)).
func TestShimIsNotDumpable(t *testing.T) {
	owners := make(chan [2]uint32, 1)
	go func() {
		defer close(owners)
		runtime.LockOSThread() // for good: ptrace(2) is a thread's
		owners <- dumpOwners(t)
	}()
	if got := <-owners; got != [2]uint32{1234, 0} {
		t.Errorf("before its first step the shim's environment belongs to group %d, want 1234; then to %d, want 0", got[0], got[1])
	}
}

// dumpOwners returns the group of the shim's /proc/PID/environ after execve(2), and when it
// limits its locked memory.
func dumpOwners(t *testing.T) (owners [2]uint32) {
	plan, err := (&shimPlan{dir: "/", candidates: []string{"/no/such"}, args: []string{"x"}, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}}).encode()
	pipes, pipesErr := newShimPipes()
	if err != nil || pipesErr != nil {
		t.Error(err, pipesErr)
		return owners
	}
	defer pipes.close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{names.ShimVariable + "=3"}
	cmd.ExtraFiles = []*os.File{shimProgram: pipes.plan, shimPlanFile: pipes.plan, shimReport: pipes.reportChild}
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true, Credential: &syscall.Credential{Gid: 1234, NoSetGroups: true}}
	if _, err := pipes.plan.WriteAt(plan, 0); err != nil {
		t.Error(err)
		return owners
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return owners
	}
	pid := cmd.Process.Pid
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	var st unix.Stat_t
	var status unix.WaitStatus
	for first := true; ; first = false {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
			t.Error(err, status)
			return owners
		}
		if err := unix.Stat(procPath(pid, "environ"), &st); err != nil {
			t.Error(err)
			return owners
		}
		if first {
			owners[0] = st.Gid
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD); err != nil {
				t.Error(err)
				return owners
			}
		}
		// setrlimit(2) is prlimit(2) with a new limit.
		number, args, err := syscallEntered(pid)
		if err != nil {
			t.Error(err)
			return owners
		}
		if number == unix.SYS_PRLIMIT64 && args[2] != 0 {
			owners[1] = st.Gid
			return owners
		}
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			t.Error(err)
			return owners
		}
	}
}

// syscallEntered returns the number and the arguments of the system call that the stopped process pid
// enters, or -1 if it enters none (PTRACE_GET_SYSCALL_INFO, ptrace(2)). The process is traced with
// PTRACE_O_TRACESYSGOOD.
func syscallEntered(pid int) (number int, args [6]uint64, err error) {
	var info struct {
		op   uint8
		_    [3]uint8
		arch uint32
		_    [2]uint64
		nr   uint64
		args [6]uint64
	}
	const entry = 1 // PTRACE_SYSCALL_INFO_ENTRY
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return -1, args, fmt.Errorf("get information about a system call: %w", errno)
	}
	if info.op != entry {
		return -1, args, nil
	}
	return int(info.nr), info.args, nil
}
