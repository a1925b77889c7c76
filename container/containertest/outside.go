package containertest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/hostile"
)

// An app finds no process outside of its pod, and changes nothing of PID 1.
func outsideCases() []testCase {
	return []testCase{
		{"user 0 reaches no process outside of the pod", func(b *bench) { reachNone(b) }},
		{"user 0 with CAP_SYS_PTRACE reaches no process outside of the pod", func(b *bench) { reachNone(b, "CAP_SYS_PTRACE") }},
		{"no signal of user 0 ends PID 1", func(b *bench) { signalInit(b) }},
		{"no signal of user 0 with CAP_SYS_PTRACE ends PID 1", func(b *bench) { signalInit(b, "CAP_SYS_PTRACE") }},
	}
}

const (
	reachCommand  = "containertest-reach"
	signalCommand = "containertest-signal"
)

// highestNumber is more than the processes that the pods of a suite have had.
const highestNumber = 1 << 15

// reach prints the processes that it can reach, but for its own, and what it can do to PID 1. It is the test program inside
// a container.
func reach() {
	var found []int
	for n := 1; n <= highestNumber; n++ {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n))
		if n == os.Getpid() || err == nil && !strings.Contains(string(status), fmt.Sprintf("\nTgid:\t%d\n", n)) {
			continue // itself, or a thread
		}
		_, group := unix.Getpgid(n)
		if err == nil || group == nil || unix.Kill(n, 0) != unix.ESRCH {
			found = append(found, n)
		}
	}
	fmt.Fprintln(os.Stdout, "found", found)
	b := []byte{0}
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, write := unix.ProcessVMWritev(1, local, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
	for name, err := range map[string]error{
		"read limits": unix.Prlimit(1, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}), "set limits": unix.Prlimit(1, unix.RLIMIT_CORE, &unix.Rlimit{}, nil),
		"write memory": write,
	} {
		if err == nil || errors.Is(err, unix.EFAULT) { // the address cannot be mapped
			fmt.Fprintln(os.Stdout, "can", name)
		}
	}
}

func reachNone(b *bench, capabilities ...string) {
	other := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	b.copy("/proc/self/exe", "probe")
	s := b.sh("exec /probe " + reachCommand)
	s.Process.Capabilities = append(slices.Clone(spec.DefaultCapabilities()), capabilities...)
	b.wantRun(s, fmt.Sprintf("found [1 %d]\n", b.inPod(other.main.PID())))
	b.wantRun(b.sh("echo here"), "here\n")
}

// sendSignals sends PID 1 every signal in every way, and prints whether the kernel allows it. It is the test program
// inside a container.
func sendSignals() {
	sent, err := hostile.Signal(1)
	fmt.Fprintln(os.Stdout, sent > 0, err, unix.Kill(1, 0))
}

// signalInit checks that PID 1 is the same process after the signals, and starts others. User 0 of a user namespace may
// send none.
func signalInit(b *bench, capabilities ...string) {
	before := b.init()
	b.copy("/proc/self/exe", "probe")
	s := b.sh("exec /probe " + signalCommand)
	s.Process.Capabilities = append(slices.Clone(spec.DefaultCapabilities()), capabilities...)
	allowed := "<nil>"
	if b.users() != "" {
		allowed = "operation not permitted"
	}
	b.wantRun(s, "true <nil> "+allowed+"\n")
	if after := b.init(); after != before {
		b.t.Errorf("PID 1 is process %d, and was %d", after, before)
	}
}
