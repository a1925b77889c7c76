package container

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/surroundings"
)

// callsRoot is a root with busybox and, as /calls, testdata/calls.c.
func callsRoot(t *testing.T) string {
	t.Helper()
	root := busyboxRoot(t)
	out, err := exec.Command("gcc", "-static", "-pthread", "-O1", "-Wall", "-o", filepath.Join(root, "calls"), "testdata/calls.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

func filterOf(set spec.SyscallSet) spec.Seccomp {
	return spec.Seccomp{Kind: spec.SeccompSet, Set: set}
}

// getppid is the number of a harmless call without arguments, here and on i386.
var getppid = [2]string{strconv.Itoa(unix.SYS_GETPPID), "64"}

// errnos are all of POSIX.1-2001 and C99, and two of Linux that appc names.
var errnos = []syscall.Errno{
	unix.E2BIG, unix.EACCES, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EAGAIN, unix.EALREADY, unix.EBADF,
	unix.EBADMSG, unix.EBUSY, unix.ECANCELED, unix.ECHILD, unix.ECONNABORTED, unix.ECONNREFUSED, unix.ECONNRESET, unix.EDEADLK,
	unix.EDESTADDRREQ, unix.EDOM, unix.EDQUOT, unix.EEXIST, unix.EFAULT, unix.EFBIG, unix.EHOSTUNREACH, unix.EIDRM, unix.EILSEQ,
	unix.EINPROGRESS, unix.EINTR, unix.EINVAL, unix.EIO, unix.EISCONN, unix.EISDIR, unix.ELOOP, unix.EMFILE, unix.EMLINK,
	unix.EMSGSIZE, unix.EMULTIHOP, unix.ENAMETOOLONG, unix.ENETDOWN, unix.ENETRESET, unix.ENETUNREACH, unix.ENFILE, unix.ENOBUFS,
	unix.ENODATA, unix.ENODEV, unix.ENOENT, unix.ENOEXEC, unix.ENOLCK, unix.ENOLINK, unix.ENOMEM, unix.ENOMSG, unix.ENOPROTOOPT,
	unix.ENOSPC, unix.ENOSR, unix.ENOSTR, unix.ENOSYS, unix.ENOTCONN, unix.ENOTDIR, unix.ENOTEMPTY, unix.ENOTSOCK, unix.ENOTSUP,
	unix.ENOTTY, unix.ENXIO, unix.EOPNOTSUPP, unix.EOVERFLOW, unix.EPERM, unix.EPIPE, unix.EPROTO, unix.EPROTONOSUPPORT,
	unix.EPROTOTYPE, unix.ERANGE, unix.EROFS, unix.ESPIPE, unix.ESRCH, unix.ESTALE, unix.ETIME, unix.ETIMEDOUT, unix.ETXTBSY,
	unix.EWOULDBLOCK, unix.EXDEV, unix.EXFULL, unix.EHWPOISON,
}

func TestSeccompReturnsEveryErrno(t *testing.T) {
	clause.Covers(t, "C-SEC-04")
	r, root := newRuntime(t), callsRoot(t)
	for _, errno := range errnos {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			s := testSpec(root, "/calls", "native:"+getppid[0])
			s.Process.Seccomp = filterOf(spec.SyscallSet{Syscalls: []string{"getppid"}, Errno: errno})
			text, status := output(t, r, s)
			if want := fmt.Sprintf("native:%s %d\n", getppid[0], -int(errno)); text != want || status.ExitStatus() != 0 {
				t.Errorf("exit status %d, got %q, want %q", status.ExitStatus(), text, want)
			}
		})
	}
}

// calls are getppid by every way that the machine has.
func calls(t *testing.T, root string) []string {
	t.Helper()
	list := []string{"native:" + getppid[0], "thread:" + getppid[0]}
	if runtime.GOARCH == "amd64" {
		list = append(list, "x32:"+getppid[0])
	}
	if runsI386(t, root) {
		list = append(list, "i386:"+getppid[1])
	}
	return list
}

// runsI386 reports whether the kernel takes calls of i386. Without its 32-bit emulation, as in some virtual machines,
// int $0x80 is a fault.
func runsI386(t *testing.T, root string) bool {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return false
	}
	cmd := exec.Command(filepath.Join(root, "calls"), "i386:"+getppid[1])
	out, err := cmd.CombinedOutput()
	if err == nil {
		return true
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGSEGV {
		t.Fatalf("%v: %s", err, out)
	}
	t.Log("this kernel takes no calls of i386")
	return false
}

func TestSeccompHoldsForEveryABIThreadAndChild(t *testing.T) {
	clause.Covers(t, "C-SEC-07")
	r, root := newRuntime(t), callsRoot(t)
	sets := map[string]spec.SyscallSet{"remove": {Syscalls: []string{"getppid"}}, "retain": {Retain: true, Syscalls: containertest.Syscalls("getppid")}}
	for name, set := range sets {
		for _, user := range []string{"0", "1000"} {
			for _, noNewPrivs := range []bool{false, true} {
				for _, call := range calls(t, root) {
					t.Run(fmt.Sprint(name, " ", user, " ", noNewPrivs, " ", call), func(t *testing.T) {
						s := testSpec(root, "sh", "-c", "/calls "+call)
						s.Process.User, s.Process.NoNewPrivileges = user, noNewPrivs
						set.Errno = unix.EXFULL
						s.Process.Seccomp = filterOf(set)
						if text, _ := output(t, r, s); text != call+" -54\n" {
							t.Errorf("with an errno: got %q", text)
						}
					})
				}
			}
		}
	}
}

// Without an errno the whole program ends, whichever thread made the call.
func TestBlockedCallsEndTheApp(t *testing.T) {
	clause.Covers(t, "C-SEC-01")
	r, root := newRuntime(t), callsRoot(t)
	filter := filterOf(spec.SyscallSet{Syscalls: []string{"getppid"}})
	for _, call := range calls(t, root) {
		s := testSpec(root, "/calls", "euid", call, "euid")
		s.Process.Seccomp = filter
		if text, status := output(t, r, s); status.Signal() != unix.SIGSYS || text != "euid 0\n" {
			t.Errorf("%s: status %#x, output %q", call, status, text)
		}
	}
}

func TestSeccompBlocksNothingElse(t *testing.T) {
	clause.Covers(t, "C-SEC-01")
	r, root := newRuntime(t), callsRoot(t)
	s := testSpec(root, "/calls", "native:"+strconv.Itoa(unix.SYS_GETUID), "native:"+getppid[0])
	s.Process.Seccomp = filterOf(spec.SyscallSet{Syscalls: []string{"getppid", "no_such_call"}, Errno: unix.EPERM})
	want := fmt.Sprintf("native:%d 0\nnative:%s -1\n", unix.SYS_GETUID, getppid[0])
	if text, _ := output(t, r, s); text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

// A retain-set without the calls that make a process the user still starts.
func TestRetainSetWithoutSetuidStarts(t *testing.T) {
	clause.Covers(t, "C-SEC-02")
	r, root := newRuntime(t), callsRoot(t)
	s := testSpec(root, "/calls", "euid", "native:"+strconv.Itoa(unix.SYS_SETUID), "native:"+strconv.Itoa(unix.SYS_SETGROUPS), "native:"+strconv.Itoa(unix.SYS_CAPSET))
	s.Process.User, s.Process.Group = "1000", "1000"
	s.Process.Seccomp = filterOf(spec.SyscallSet{Retain: true, Syscalls: containertest.Syscalls(), Errno: unix.EXFULL})
	text, status := output(t, r, s)
	if !strings.HasPrefix(text, "euid 1000\n") || strings.Count(text, " -54\n") != 3 || status.ExitStatus() != 0 {
		t.Errorf("exit status %d:\n%s", status.ExitStatus(), text)
	}
}

// grant sets a file's capability; a process that executes the file gets it
// (capabilities(7), file capabilities, revision 2).
func grant(t *testing.T, path string, capability int) {
	t.Helper()
	value := binary.LittleEndian.AppendUint32(nil, 0x02000001) // VFS_CAP_REVISION_2, effective
	for _, word := range []uint32{1 << capability, 0, 0, 0} {
		value = binary.LittleEndian.AppendUint32(value, word)
	}
	if err := unix.Setxattr(path, "security.capability", value, 0); err != nil {
		t.Fatal(err)
	}
}

// A filter does not switch no_new_privs on for an app that is not root,
// so file capabilities and set-user-ID work; the isolator does.
func TestOnlyTheIsolatorSetsNoNewPrivileges(t *testing.T) {
	clause.Covers(t, "C-NNP-01")
	r, root := newRuntime(t), callsRoot(t)
	for name, mode := range map[string]os.FileMode{"setuid": 0o755 | os.ModeSetuid, "granted": 0o755} {
		if out, err := exec.Command("cp", filepath.Join(root, "calls"), filepath.Join(root, name)).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, filepath.Join(root, "granted"), unix.CAP_NET_BIND_SERVICE)
	tests := map[bool]string{
		false: "NoNewPrivs:\t0\nbind 0\nbind -13\neuid 0\n",
		true:  "NoNewPrivs:\t1\nbind -13\nbind -13\neuid 1000\n",
	}
	for name, filter := range map[string]spec.Seccomp{"none": {Kind: spec.SeccompOff}, "default": {}, "remove": filterOf(spec.SyscallSet{Syscalls: []string{"reboot"}})} {
		for noNewPrivs, want := range tests {
			t.Run(fmt.Sprint(name, " ", noNewPrivs), func(t *testing.T) {
				s := testSpec(root, "sh", "-c", "grep NoNewPrivs /proc/self/status; /granted bind; /calls bind; /setuid euid")
				s.Process.User, s.Process.Group = "1000", "1000"
				s.Process.NoNewPrivileges, s.Process.Seccomp = noNewPrivs, filter
				if text, _ := output(t, r, s); text != want {
					t.Errorf("got %q, want %q", text, want)
				}
			})
		}
	}
}

func TestAppHasItsOwnOOMScoreNotTheStagers(t *testing.T) {
	clause.Covers(t, "C-OOM-01")
	r, root := newRuntime(t), busyboxRoot(t)
	for _, score := range []int{0, 1, 1000} {
		s := testSpec(root, "cat", "/proc/self/oom_score_adj")
		s.OOMScoreAdj = score
		if text, _ := output(t, r, s); text != strconv.Itoa(score)+"\n" {
			t.Errorf("got %q, want %d", text, score)
		}
	}
}

// cgroupFile reads a file of a container's cgroup, by its name in version 1 and 2.
func cgroupFile(t *testing.T, s spec.Spec, controller, v1, v2 string) string {
	t.Helper()
	path := filepath.Join("/sys/fs/cgroup", controller, s.Cgroup, v1)
	if cgroups.IsCgroup2UnifiedMode() {
		path = filepath.Join("/sys/fs/cgroup", s.Cgroup, v2)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestMemoryLimitAndRequestAreInTheCgroup(t *testing.T) {
	clause.Covers(t, "C-MEM-01")
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sleep", "1000")
	s.Resources = spec.Resources{MemoryLimit: 64<<20 + 1, MemoryRequest: 32 << 20}
	startSleeper(t, r, s)
	if got := cgroupFile(t, s, "memory", "memory.limit_in_bytes", "memory.max"); got != "67108864" {
		t.Errorf("limit %s", got)
	}
	if got := cgroupFile(t, s, "memory", "memory.soft_limit_in_bytes", "memory.low"); got != "33554432" {
		t.Errorf("request %s", got)
	}

	s = testSpec(root, "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
	s.Resources = spec.Resources{MemoryLimit: 64 << 20}
	if text, status := output(t, r, s); status.Signal() != unix.SIGKILL {
		t.Errorf("status %#x:\n%s", status, text)
	}
}

func TestCPULimitAndWeightAreInTheCgroup(t *testing.T) {
	clause.Covers(t, "C-CPU-01")
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sh", "-c", "while :; do :; done")
	s.Resources = spec.Resources{CPUQuota: 1_000, CPUPeriod: 100_000, CPUShares: 512}
	startSleeper(t, r, s)
	if got := cgroupFile(t, s, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "1000" && got != "1000 100000" {
		t.Errorf("quota %s", got)
	}
	weight := strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(512), 10)
	if got := cgroupFile(t, s, "cpu", "cpu.shares", "cpu.weight"); got != "512" && got != weight {
		t.Errorf("weight %s", got)
	}
	// It has used up its share at some time, whatever else the machine does.
	surroundings.Eventually(t, "a throttled app", func() bool { return throttled(cgroupFile(t, s, "cpu", "cpu.stat", "cpu.stat")) })
}

func throttled(stat string) bool {
	for line := range strings.Lines(stat) {
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "nr_throttled "); found {
			return n != "0"
		}
	}
	return false
}
