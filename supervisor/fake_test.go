package supervisor_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/supervisortest"
	"kurma.io/stager/tests/surroundings"
)

// fake is a container of plain processes.
type fake struct {
	*supervisortest.Container
	oom bool // an out-of-memory kill ended the main process, if SIGKILL did
	// starting, where not nil, is received from before the process starts.
	starting <-chan struct{}
}

func (f *fake) Start(stdio spec.Stdio) (spec.Running, error) {
	if f.starting != nil {
		<-f.starting
	}
	return f.Container.Start(stdio)
}

func (f *fake) OOMKilled() bool { return f.oom }

// fakes makes the containers of one test, in a cgroup of its own.
type fakes struct {
	runtime *supervisortest.Runtime
	cgroup  string
	dir     string // of the cgroup
	n       atomic.Int64
}

func newFakes(t testing.TB) *fakes {
	t.Helper()
	b := &fakes{cgroup: "/supervisor-test-" + strings.ToLower(rand.Text()[:10])}
	b.runtime = supervisortest.NewRuntime(b.cgroup)
	if err := errors.Join(b.runtime.Prepare(t.TempDir(), spec.Resources{}), b.runtime.MakePod()); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		if found, _ := filepath.Glob(pattern + b.cgroup); len(found) > 0 {
			b.dir = found[0]
		}
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob(b.dir + "/*/cgroup.procs"); len(left) > 0 {
			t.Errorf("containers were not destroyed: %q", left)
		}
		if err := b.runtime.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *fakes) make(args ...string) (*fake, error) {
	name := strconv.FormatInt(b.n.Add(1), 10)
	c, err := b.runtime.Container(spec.Spec{
		Name: name, Cgroup: b.cgroup + "/" + name, Process: spec.Process{Args: args, Env: os.Environ()},
	})
	if err != nil {
		return nil, err
	}
	return &fake{Container: c.(*supervisortest.Container)}, nil
}

// run is a factory of containers that run args.
func (b *fakes) run(args ...string) func() (spec.Container, error) {
	return func() (spec.Container, error) {
		c, err := b.make(args...)
		return c, err
	}
}

// sh is a factory of containers that run a shell script.
func (b *fakes) sh(script string) func() (spec.Container, error) {
	return b.run("/bin/sh", "-c", script)
}

// log collects what an app writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	more *sync.Cond
}

func newLog() *log {
	l := &log{}
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more.Broadcast()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log contains text, and panics if it does not within surroundings.Patience.
func (l *log) await(text string) {
	late := false
	timer := time.AfterFunc(surroundings.Patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.more.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text.String(), text) {
		if late {
			panic(fmt.Sprintf("no %q within %s in %q", text, surroundings.Patience, l.text.String()))
		}
		l.more.Wait()
	}
}

// running is a pod whose Run is under way.
type running struct {
	*Supervisor
	t     *testing.T
	end   context.CancelFunc
	ready chan struct{}
	done  chan struct{}
	code  int
	err   error
}

// refusals fails a test when a state that the diagram forbids is refused.
type refusals struct{ t *testing.T }

func (r refusals) Write(message []byte) (int, error) {
	if bytes.Contains(message, []byte(RefusedMove)) {
		r.t.Errorf("%s", message)
	}
	return len(message), nil
}

// start runs a pod.
func start(t *testing.T, config Config) *running {
	t.Helper()
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(refusals{t}, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Supervisor: New(config), t: t, end: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	go func() {
		defer close(r.done)
		r.code, r.err = r.Run(ctx, func() error {
			close(r.ready)
			return nil
		})
	}()
	return r
}

// up waits until the pod is ready.
func (r *running) up() *running {
	r.t.Helper()
	select {
	case <-r.ready:
	case <-r.done:
		r.t.Fatalf("the pod ended before it was ready: %d, %v", r.code, r.err)
	}
	return r
}

// stopped stops the pod and returns what Run did.
func (r *running) stopped() (int, error) {
	r.end()
	<-r.done
	return r.code, r.err
}

// wait waits until Run has returned.
func (r *running) wait() (int, error) {
	<-r.done
	return r.code, r.err
}
