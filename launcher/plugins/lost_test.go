package plugins

import (
	"errors"
	"testing"
)

func TestAPluginRunsWhileItsMainProcessDoes(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		want         bool
	}{
		{"runs", `{"plugin":{"pid":17,"exited":false}}`, true},
		{"in another PID namespace", `{"plugin":{"exited":false}}`, true},
		{"was killed", `{"plugin":{"exited":true,"exitCode":137,"exitReason":"signal 9"}}`, false},
		{"has just ended", `{"plugin":{"exited":false,"ending":true}}`, false},
		{"another app", `{"other":{"pid":17,"exited":false}}`, false},
		{"no answer", "", false},
	} {
		if got := runs([]byte(tt.answer)); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A call whose container ends is repeated once: a plugin that ends its own container does not keep the launcher.
func TestACallOfALostContainerIsRepeatedOnce(t *testing.T) {
	other := errors.New("no more addresses")
	for _, tt := range []struct {
		name  string
		errs  []error // of the calls
		calls int
		want  error
	}{
		{"done", []error{nil}, 1, nil},
		{"refused", []error{other}, 1, other},
		{"lost", []error{errLost, nil}, 2, nil},
		{"lost, then refused", []error{errLost, other}, 2, other},
		{"lost twice", []error{errLost, errLost, nil}, 2, errLost},
	} {
		calls := 0
		err := again(func() error { calls++; return tt.errs[calls-1] })
		if calls != tt.calls || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d calls, error %v", tt.name, calls, err)
		}
	}
}
