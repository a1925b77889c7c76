package supervisor

import (
	"testing"
	"time"
)

// leaky is a container of which the first Kill misses what is just forked.
type leaky struct {
	*box
	kills int
}

func (l *leaky) Kill() error {
	if l.kills++; l.kills == 1 {
		return nil
	}
	return l.box.Kill()
}

func TestNothingOutlivesTheMainProcess(t *testing.T) {
	b := newBoxes(t)
	pod := start(t, Config{Exit: ExitAll, Grace: time.Minute, Apps: []App{{
		Name: "app",
		Main: func() (Container, error) {
			c, err := b.make("/bin/sh", "-c", "trap '' TERM; sleep 1000 & setsid sleep 1001 & exit 3")
			return &leaky{box: c}, err
		},
	}}})
	if code, err := pod.over(); code != 3 || err != nil {
		t.Errorf("Run() = %d, %v", code, err)
	}
	awaitNoChildren(t)
}
