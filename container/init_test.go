package container

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// podNamespaces are those of a pod by default.
const podNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// theInit is the init of all tests but those that need one of their own.
var theInit = sync.OnceValues(newInit)

func newInit() (*pid1.Init, error) {
	init, err := pid1.New()
	if err != nil {
		return nil, err
	}
	return init, init.Begin(podNamespaces, nil)
}

// newInitWithin is newInit with a soft limit of open files: a stager forks its init before the Go runtime raises the limit
// that it finds. The bare system call leaves what Go remembers of it.
func newInitWithin(t *testing.T, files uint64) *pid1.Init {
	t.Helper()
	var before unix.Rlimit
	limit := func(now *unix.Rlimit) {
		if _, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(now)), 0, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit(&unix.Rlimit{Cur: files, Max: before.Max})
	init, err := newInit()
	limit(&before)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = init.Close() })
	return init
}

// inPod returns a process's number in the pod's PID namespace.
func inPod(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.Atoi(strings.Fields(line)[1]) // after that in this namespace
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func initOf(t testing.TB) *pid1.Init {
	t.Helper()
	init, err := theInit()
	if err != nil {
		t.Fatal(err)
	}
	return init
}

// The processes of a pod whose init was killed have ended when they are reported as such, also in the host's PID
// namespace, where the kernel kills none of them.
func TestProcessesHaveEndedWithTheirInit(t *testing.T) {
	for _, namespaces := range []uintptr{podNamespaces, podNamespaces &^ unix.CLONE_NEWPID} {
		init, err := pid1.New()
		if err == nil {
			err = init.Begin(namespaces, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := newRuntime(t)
		r.init = init
		t.Setenv(directVariable, "1")
		c := containerOf(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
		p, err := c.Start(spec.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(init.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		state, err := os.ReadFile(procPath(p.PID(), "stat"))
		if err == nil && !strings.Contains(string(state), ") Z ") {
			t.Errorf("namespaces %#x: the process is %q", namespaces, state)
		}
		if err := errors.Join(c.Destroy(), init.Close()); err != nil {
			t.Error(err)
		}
	}
}
