package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"kurma.io/stager/names"
)

// A call-in runs in the stager's root and network, and a call-in that does not read its settings is killed.
func TestACallInRunsInThePod(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "call", "exec /busybox sleep 1000\n")
	folder := filepath.Join(pod.Plan.StagerRoot, names.CallInDir)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"show": "/busybox readlink /proc/self/ns/net\n/busybox readlink /proc/self/ns/mnt\n/busybox cat <&3\nexit 3\n",
		"deaf": "exec /busybox sleep 1000\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(interpreter+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	_, err := pod.Run(ctx, false, func() error {
		defer stop()
		network, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pod.State.Stager.PID))
		mounts, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pod.State.Stager.PID))
		code, text, err := pod.callIn(t, "show")
		if want := network + "\n" + mounts + "\nsettings"; code != 3 || text != want || errors.Join(err, err1, err2) != nil {
			t.Errorf("code %d, %q, %v, want %q", code, text, errors.Join(err, err1, err2), want)
		}
		if code, _, err := pod.callIn(t, "deaf"); err == nil || !strings.Contains(err.Error(), "has not read its settings") {
			t.Errorf("code %d, %v", code, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

// callIn runs a call-in with settings and returns its exit status and its output.
func (p *Pod) callIn(t *testing.T, name string) (code int, text string, err error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	code, err = p.Execute(t.Context(), Call{Name: name, Stdio: [3]*os.File{null, write, write}, Settings: []byte("settings")})
	_ = write.Close()
	output, readErr := io.ReadAll(read)
	return code, string(output), errors.Join(err, readErr)
}

// A call-in that waits in the kernel does not end although it is killed: nobody tells its end here.
func TestACallInThatCannotBeKilledIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cmd := exec.Command("/bin/busybox", "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		cancel(why)
		_, err := Call{Name: "run"}.await(ctx, cmd.Process, nil, nil)
		if !errors.Is(err, why) || !strings.HasSuffix(err.Error(), " has not ended within 5s after it was killed") {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the call-in was not killed")
		}
	})
}
