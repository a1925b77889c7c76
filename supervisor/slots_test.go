package supervisor

import (
	"errors"
	"syscall"
	"testing"

	"kurma.io/stager/supervisor/output"
	"kurma.io/stager/supervisor/reap"
)

// full is a pod without apps whose slots are all taken, as by starts that hang.
func full(t *testing.T) *Pod {
	t.Helper()
	reaper, err := reap.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reaper.Close)
	pod := NewPod(Config{Reaper: reaper})
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
	handler := func() (Container, error) {
		t.Error("it was started after its limit")
		return nil, errors.New("no")
	}
	if _, err := r.runHandler(handler, stop{forced: limit}); !errors.Is(err, errTooLate) {
		t.Errorf("%v", err)
	}
}

func TestExecErrorIsOneLine(t *testing.T) {
	for path, want := range map[string]string{
		"/bin/a b\\\"é": "exec /bin/a b\\\"é: no such file or directory",
		"/bin/a\nb":     `exec "/bin/a\nb": no such file or directory`,
		"/bin/\xff":     `exec "/bin/\xff": no such file or directory`,
		"/bin/\u2028":   `exec "/bin/\u2028": no such file or directory`,
	} {
		if got := (&ExecError{Path: path, Errno: syscall.ENOENT}).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
