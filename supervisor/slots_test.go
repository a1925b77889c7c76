package supervisor

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor/output"
)

// full is a pod without apps whose slots are all taken, as by starts that hang.
func full(t *testing.T) *Supervisor {
	t.Helper()
	pod := New(Config{})
	pod.output = output.NewCollector()
	t.Cleanup(pod.output.Close)
	for range parallelStarts {
		pod.slots <- struct{}{}
	}
	return pod
}

// A post-stop handler's limit also holds while it waits for its turn.
func TestPostStopDoesNotWaitForASlotForEver(t *testing.T) {
	limit := make(chan struct{})
	close(limit)
	r := newRun(&app{pod: full(t)})
	handler := func() (spec.Container, error) {
		t.Error("it was started after its limit")
		return nil, errors.New("no")
	}
	if _, err := r.runHandler(handler, stop{forced: limit}); !errors.Is(err, errTooLate) {
		t.Errorf("%v", err)
	}
}

// stuckFor is a container whose start takes until it is released, whatever kills it.
type stuckFor struct {
	spec.Container
	released <-chan struct{}
	killed   chan struct{} // receives a value for each Kill, if it has room
}

func (s *stuckFor) Start(spec.Stdio) (spec.Running, error) {
	<-s.released
	return nil, errors.New("killed")
}

func (s *stuckFor) Kill() error {
	select {
	case s.killed <- struct{}{}:
	default:
	}
	return nil
}

// A start that takes too long is killed, and called so.
func TestAStartHasALimitInTime(t *testing.T) {
	pod := full(t)
	pod.config.StartLimit = time.Millisecond
	<-pod.slots
	killed := make(chan struct{}, 1)
	c := &stuckFor{released: killed, killed: killed}
	if _, _, err := pod.launch(func() (spec.Container, error) { return c, nil }, spec.Stdio{}, stop{}); err == nil || err.Error() != "not started within 1ms, and killed: killed" {
		t.Errorf("error %v", err)
	}
}

// A start that not even SIGKILL ends gives its slot to others.
func TestAStartThatHangsGivesUpItsSlot(t *testing.T) {
	pod := full(t)
	<-pod.slots
	released, begun, hung := make(chan struct{}), make(chan struct{}), make(chan struct{})
	nothing := errors.New("nothing")
	go func() {
		defer close(hung)
		_, _ = pod.spawn(pod.slots, time.Millisecond, nil, nil, func() (spec.Running, error) {
			close(begun)
			<-released
			return nil, nothing
		})
	}()
	<-begun
	if _, err := pod.spawn(pod.slots, time.Millisecond, nil, nil, func() (spec.Running, error) { return nil, nothing }); !errors.Is(err, nothing) {
		t.Errorf("error %v", err)
	}
	close(released)
	<-hung
}

// A session whose processes cannot be looked at is not one without processes.
func TestMembersOfASessionWithoutDescriptors(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	members, err := (&Session{pid: 1}).members()
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	if len(members) != 0 || !errors.Is(err, unix.EMFILE) {
		t.Errorf("%d members, %v", len(members), err)
	}
}

func TestExecErrorIsOneLine(t *testing.T) {
	for path, want := range map[string]string{
		"/bin/a b\\\"é": "exec /bin/a b\\\"é: no such file or directory",
		"/bin/a\nb":     `exec "/bin/a\nb": no such file or directory`,
		"/bin/\xff":     `exec "/bin/\xff": no such file or directory`,
		"/bin/\u2028":   `exec "/bin/\u2028": no such file or directory`,
	} {
		if got := (&spec.ExecError{Path: path, Errno: syscall.ENOENT}).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
