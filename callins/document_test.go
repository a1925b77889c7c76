package callins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

// appUptime is an app in the document of the call-in uptime, which this file and
// a row in each of the two tables add: callIns and handlers of main_test.go.
type appUptime struct {
	PID     int    `json:"pid"`
	Seconds uint64 `json:"seconds"`
}

// uptimes returns the document of `uptime [APP…]`: how long the apps, or those named,
// have been running.
func uptimes(pod *supervisor.Supervisor, since time.Time) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, call *Call) (any, error) {
		document := make(map[string]appUptime)
		for _, app := range pod.Status() {
			pid, err := call.Process(ctx, app.PID)
			if err != nil {
				return nil, err
			}
			document[app.Name] = appUptime{pid, uint64(time.Since(since).Seconds())}
		}
		for _, name := range call.Args() {
			if _, ok := document[name]; !ok {
				return nil, fmt.Errorf("app %q: %w", name, supervisor.ErrNoApp)
			}
		}
		return document, nil
	}
}

func TestACallInIsARowOnBothSides(t *testing.T) {
	p := newPod(t, sleeper)
	got := finish(t, p.caller("uptime", "", "app"))
	var document map[string]appUptime
	if err := json.Unmarshal([]byte(got.Stdout), &document); err != nil || got.Code != 0 || got.Stderr != "" {
		t.Fatalf("uptime: %+v, %v", got, err)
	}
	checkSleeper(t, document["app"].PID)
	want := result{Code: 1, Stderr: "uptime: app \"x\": no such app\n"}
	if got := finish(t, p.caller("uptime", "", "x")); got != want {
		t.Errorf("uptime of no app: %+v, want %+v", got, want)
	}
}

// checkSleeper checks that a process is the app sleeper by the caller's numbers.
func checkSleeper(t *testing.T, pid int) {
	t.Helper()
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if want := "/bin/sleep\x00infinity\x00"; err != nil || string(command) != want {
		t.Errorf("process %d is %q, %v, want %q", pid, command, err, want)
	}
}

// The caller's PID namespace has none of the pod's
// processes.
func TestNoProcessIsVisibleFromAnotherNamespace(t *testing.T) {
	p := newPod(t, sleeper)
	for role, want := range map[string]string{
		"status": "{\n\t\"app\": {\n\t\t\"exited\": false\n\t}\n}\n",
		"uptime": `"pid": 0,`,
	} {
		cmd := p.caller(role, "")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		if got := finish(t, cmd); got.Code != 0 || !strings.Contains(got.Stdout, want) {
			t.Errorf("%s: %+v, want %s", role, got, want)
		}
	}
}

// callPair is a call and the caller's end of its connection.
func callPair(t *testing.T, req request) (*Call, conn) {
	t.Helper()
	caller, server := pair(t)
	return &Call{conn: server, request: req}, caller
}

func TestProcessReportsOneThatHasGone(t *testing.T) {
	call, _ := callPair(t, request{})
	if _, err := call.Process(t.Context(), 1<<22+1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("error %v, want ESRCH", err)
	}
}

func TestProcessRefusesWhatTheCallerMakesUp(t *testing.T) {
	for _, text := range []string{`{"process":-1}`, `{"process":"1"}`, "x"} {
		call, caller := callPair(t, request{})
		if _, err := caller.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if n, err := call.Process(t.Context(), os.Getpid()); err == nil {
			t.Errorf("%s returned the number %d", text, n)
		}
	}
}

// TestProcessEndsWithItsContext: a caller that does not answer does not prevent the
// server from ending.
func TestProcessEndsWithItsContext(t *testing.T) {
	call, _ := callPair(t, request{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := call.Process(ctx, os.Getpid()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v, want a deadline", err)
	}
}

func TestServeDocumentReportsWhatItCannotEncode(t *testing.T) {
	call, caller := callPair(t, request{Call: "odd"})
	handler := ServeDocument(func(context.Context, *Call) (any, error) { return func() {}, nil })
	if err := handler(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	_, _, err := caller.next(kindDocument)
	var remote *remoteError
	if !errors.As(err, &remote) || remote.code != exitDocument || !strings.HasPrefix(remote.message, "encode document: ") {
		t.Errorf("the caller got %v", err)
	}
}
