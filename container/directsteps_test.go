package container

import (
	"cmp"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// stepper lets the processes of a runtime's direct starts go from system call to system call (seccomp_unotify(2)), and
// interferes at one of them.
type stepper struct {
	listener int
	init     int // its number; it always goes on

	mu        sync.Mutex
	victim    int           // guarded by mu; the next new process if it is 0
	steps     []int32       // guarded by mu; the victim's calls until now, execve(2) included
	executed  bool          // guarded by mu
	at        int           // guarded by mu; 0 for none
	interfere func(pid int) // guarded by mu; at step at, which the victim does not make
	failing   *failing.Call // guarded by mu; fails in all processes but init
	reached   chan struct{} // guarded by mu; closed at step at
}

// notUnderWatch are calls that threads make to be threads, processes without an effect that another one sees, and threads
// of this program while others wait for them: serve could not answer then. The Go runtime reads the clock with its locks
// held, by a system call where the machine's clock is not readable otherwise. The C library's fork calls clone with the
// lock of malloc held, without which the Go runtime makes no thread for serve. The C library's setgroups has each thread
// of this program make the call, init's parent too, and the caller keeps its processor meanwhile: a collection would wait
// for it, and stop serve.
var notUnderWatch = []uint32{
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_CLONE3, unix.SYS_RT_SIGPROCMASK,
	unix.SYS_RT_SIGACTION, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_YIELD,
	unix.SYS_NANOSLEEP, unix.SYS_TGKILL, unix.SYS_RT_SIGRETURN, unix.SYS_EXIT, unix.SYS_EPOLL_CTL, unix.SYS_SIGALTSTACK,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLONE, unix.SYS_SETGROUPS,
}

// newStepper watches what the runtime starts from now on, until its end.
func newStepper(t *testing.T, r *Runtime) *stepper {
	t.Helper()
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for i, number := range notUnderWatch {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jt: uint8(len(notUnderWatch) - i)})
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF}, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
	text := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// The Go runtime makes calls on the thread that keep its processor, and which serve has to answer: serve needs another
	// processor, also where the environment has GOMAXPROCS=1, and no collection may stop it meanwhile.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s, done := &stepper{}, make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&text)))
		if errno != 0 {
			done <- errno
			return
		}
		s.listener = int(fd)
		go s.serve()
		var err error
		r.init, err = pid1.New() // a thread has the filter of the one that makes it, and a child its parent's
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.init.Begin(podNamespaces, nil); err != nil {
		t.Fatal(err)
	}
	s.init = r.init.PID()
	t.Cleanup(func() { _ = r.init.Close() })
	return s
}

// fail has a call fail in all processes that init starts.
func (s *stepper) fail(call failing.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = &call
}

// fails returns the errno of a call that is to fail, or 0.
func (s *stepper) fails(pid int, number int32, args []uint64) unix.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing == nil || pid == s.init || uint32(number) != s.failing.Number {
		return 0
	}
	for i, want := range s.failing.Args {
		if uint32(args[i]) != want {
			return 0
		}
	}
	return cmp.Or(s.failing.Errno, unix.EPERM)
}

// serve answers until no process has the filter.
func (s *stepper) serve() {
	defer unix.Close(s.listener)
	const receive, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV and _SEND
	for {
		var asked struct {
			id         uint64
			pid, flags uint32
			number     int32
			arch       uint32
			rest       [7]uint64
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), receive, uintptr(unsafe.Pointer(&asked)))
		if errors.Is(errno, unix.EINTR) {
			continue
		}
		if ended := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}; errno != 0 {
			if n, err := unix.Poll(ended, 0); err == nil && n > 0 && ended[0].Revents&unix.POLLHUP != 0 {
				return
			}
			continue // the process has ended meanwhile
		}
		if !s.passes(int(asked.pid), asked.number) {
			continue
		}
		answer := struct {
			id    uint64
			value int64
			errno int32
			flags uint32
		}{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno := s.fails(int(asked.pid), asked.number, asked.rest[1:]); errno != 0 {
			answer.errno, answer.flags = -int32(errno), 0
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), send, uintptr(unsafe.Pointer(&answer)))
	}
}

// passes decides on a system call.
func (s *stepper) passes(pid int, number int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid == s.init || s.victim != 0 && pid != s.victim || s.executed || s.reached == nil {
		return true
	}
	s.victim = pid
	s.steps = append(s.steps, number)
	if s.at == 0 || len(s.steps) < s.at {
		s.executed = number == unix.SYS_EXECVE
		return true
	}
	if len(s.steps) == s.at {
		close(s.reached)
	}
	s.interfere(pid)
	return false
}

// arm watches the next process that is started, and interferes at a step, 0 for none.
func (s *stepper) arm(at int, interfere func(int)) (reached <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.victim, s.steps, s.executed, s.at, s.interfere, s.reached = 0, nil, false, at, interfere, make(chan struct{})
	return s.reached
}

// interference is what an app can do to a process of a start, at any of its steps.
type interference struct {
	act  func(pid int)
	most int // at so many steps at most with the same system call
}

var interferences = map[string]interference{
	"kills": {func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }, 1000},
	// Again whenever it is continued. Each costs the limit of a start.
	"stops": {func(pid int) { _ = unix.Kill(pid, unix.SIGSTOP) }, 3},
}

// A process that is stopped or killed at any step of a start costs its start, in time, and leaves nothing; another app's
// command runs meanwhile.
func TestDirectStartsEndWhereverTheyAreInterrupted(t *testing.T) {
	t.Setenv(directVariable, "1")
	for what, interfere := range interferences {
		t.Run(what, func(t *testing.T) {
			other, root := startUnwatched(t), busyboxRoot(t)
			step := newStepper(t, other.runtime)
			interrupt(t, step, interfere, other, &other.runtime.startLimit, func() (spec.Running, func() error, error) {
				c := containerOf(t, other.runtime, testSpec(root, "true"))
				p, err := c.Start(spec.Stdio{})
				return p, c.Destroy, err
			})
		})
	}
}

// So does one of a command.
func TestDirectCommandsEndWhereverTheyAreInterrupted(t *testing.T) {
	t.Setenv(directVariable, "1")
	for what, interfere := range interferences {
		t.Run(what, func(t *testing.T) {
			c, other := startUnwatched(t), startUnwatched(t)
			step := newStepper(t, c.runtime)
			interrupt(t, step, interfere, other, &c.runtime.execLimit, func() (spec.Running, func() error, error) {
				p, err := c.Exec(rootCommand("true"), spec.Stdio{})
				return p, func() error { return nil }, err
			})
		})
	}
}

// interrupt interferes with a start at each of its steps. The start ends by a limit if it is kept.
func interrupt(
	t *testing.T, step *stepper, interfere interference, other *container, limit *time.Duration, start func() (spec.Running, func() error, error),
) {
	t.Helper()
	step.arm(0, nil)
	p, destroy, err := start()
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := destroy(); err != nil {
		t.Fatal(err)
	}
	steps := step.steps
	t.Log(len(steps), "steps")
	if len(steps) < 30 {
		t.Fatal("too few")
	}
	calls := map[int32]int{}
	*limit = 100 * time.Millisecond
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes lost files
	before := heldNow(t)
	for at := 1; at <= len(steps); at++ {
		if calls[steps[at-1]]++; calls[steps[at-1]] > interfere.most {
			continue
		}
		reached, begin := step.arm(at, interfere.act), time.Now()
		over, neighbour := make(chan struct{}), make(chan string, 1)
		go func() {
			select {
			case <-reached:
				text, _ := execOutput(t, other, rootCommand("sh", "-c", "echo other"))
				neighbour <- text
			case <-over:
				neighbour <- ""
			}
		}()
		p, destroy, err := start()
		took := time.Since(begin)
		close(over)
		step.arm(0, nil)
		switch text := <-neighbour; {
		case text == "" && *limit < 10*time.Second: // the machine is busy
			*limit *= 2
			calls[steps[at-1]]--
			at--
		case text != "other\n":
			t.Errorf("step %d: another app's command writes %q", at, text)
		}
		checkInterrupted(t, p, err)
		if err := destroy(); err != nil {
			t.Errorf("step %d: %v", at, err)
		}
		if took > *limit+10*time.Second {
			t.Errorf("step %d: the start takes %s, %v", at, took, err)
		}
		var left []string
		if !surroundings.Eventually(t, "no descriptor and no process is left", func() bool {
			left = slices.DeleteFunc(heldNow(t), func(one string) bool { return slices.Contains(before, one) })
			return len(left) == 0 // the kill by the limit may be returning
		}) {
			t.Fatalf("step %d: %v; left are %q", at, err, left)
		}
	}
}

// heldNow returns the descriptors and the children of this process.
func heldNow(t *testing.T) []string {
	t.Helper()
	files, children := held(t)
	return append(files, children...)
}

// checkInterrupted checks the end of a start that was interrupted.
func checkInterrupted(t *testing.T, p spec.Running, err error) {
	t.Helper()
	if err == nil { // who is killed when the root is made counts as the app
		if <-p.Done(); !p.Status().Signaled() {
			t.Errorf("the start succeeds, and the process ends with %#x", p.Status())
		}
	}
}
