package pods

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// whileFailing calls do on a thread on which a system call fails, as in what do starts.
func whileFailing(t *testing.T, call uint32, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := failing.Call{Number: call, Errno: unix.EMFILE}.Fail()
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// runDetached starts a pod with a monitor of its own.
func (s *Store) runDetached(t *testing.T, m *Monitor, name, script string) *Pod {
	t.Helper()
	k := s.newPodOf(t, m.UUID, name, "")
	k.runScript(t, script)
	k.Plan.StopTimeout = surroundings.Patience
	if err := errors.Join(jsonfile.Write(filepath.Join(k.Dir, planFile), k.Plan), m.HandOver(t.Context(), k)); err != nil {
		t.Fatal(err)
	}
	return &k.Pod
}

const stopsWith7 = "trap 'exit 7' TERM\n" + isUp + "while :; do /busybox sleep 0.02; done\n"

// A caller without descriptors left does not know whether a process is gone, and says so.
func TestAProcessThatCannotBeLookedAtIsNotGone(t *testing.T) {
	s := newStore(t)
	pod := s.runDetached(t, startTestMonitor(t, s), "alive", stopsWith7)
	whileFailing(t, unix.SYS_OPENAT, func() {
		if ended, err := pod.State.Stager.ended(); ended || !errors.Is(err, unix.EMFILE) {
			t.Errorf("ended: %t, %v", ended, err)
		}
	})
	for _, call := range []uint32{unix.SYS_OPENAT, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL} {
		whileFailing(t, call, func() {
			for what, err := range map[string]error{
				"signal": pod.State.Stager.signal(unix.SIGKILL),
				"kill":   s.Kill(pod.Plan.UUID),
				"end":    s.End(t.Context(), pod),
				"stop":   s.Stop(t.Context(), pod),
				"remove": s.Remove(t.Context(), pod, true),
			} {
				if !errors.Is(err, unix.EMFILE) && !errors.Is(err, ErrHeld) { // an unknown lock counts as held
					t.Errorf("call %d: %s: %v", call, what, err)
				}
			}
			if call == unix.SYS_PIDFD_OPEN && pod.Ends(t.Context(), time.Nanosecond) {
				t.Error("a pod that cannot be looked at has ended")
			}
			if _, err := pod.Execute(t.Context(), Call{Name: "status"}); call == unix.SYS_PIDFD_OPEN && errors.Is(err, ErrEnded) {
				t.Error(err)
			}
		})
	}
	if err := s.Stop(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if state := pod.State; state.Phase != Exited || state.Exit.Code != 7 {
		t.Errorf("%+v, %+v", state, state.Exit)
	}
	if err := s.Remove(t.Context(), pod, false); err != nil {
		t.Error(err)
	}
}

// A monitor without descriptors left can signal its stager: the pod gets its grace period.
func TestAMonitorSignalsItsStagerWithoutADescriptor(t *testing.T) {
	s := newStore(t)
	var m *Monitor
	whileFailing(t, unix.SYS_PIDFD_OPEN, func() {
		var err error
		if m, err = s.StartMonitor([]string{"test", monitorWord}); err != nil {
			t.Error(err)
		}
	})
	if m == nil {
		return
	}
	t.Cleanup(m.Close)
	pod := s.runDetached(t, m, "asked", stopsWith7)
	if err := s.Stop(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if exit := pod.State.Exit; exit == nil || exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
	if err := s.Remove(t.Context(), pod, false); err != nil {
		t.Error(err)
	}
}

// stopperWord makes this program stop a pod of a store, whose cgroup is named too.
const stopperWord = "stopper-of-a-test"

func stopAsTest(dir, group, uuid string) int {
	s := Open(dir, group)
	pod, err := s.Get(uuid)
	if err == nil {
		err = s.Stop(context.Background(), pod)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	return 0
}

// The processes of a pod start at another time in another time namespace.
func TestAPodIsStoppedFromAnotherTimeNamespace(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	pod := s.runDetached(t, startTestMonitor(t, s), "elsewhere", stopsWith7)
	cmd := exec.Command("unshare", "--time", "--boottime", "100000", "--fork", program, stopperWord, s.dir, s.cgroup, pod.Plan.UUID)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if state := pod.is(t); state.Phase != Exited || state.Exit.Code != 7 {
		t.Errorf("%+v, %+v", state, state.Exit)
	}
	if err := s.Remove(t.Context(), pod, true); err != nil {
		t.Error(err)
	}
}

// A stop ends although nothing ever releases the pod's lock.
func TestAStopDoesNotWaitForEver(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "hung", "")
	k.State.Monitor = Process{PID: 1 << 30, Start: 1}
	if err := k.save(); err != nil {
		t.Fatal(err)
	}
	pod := k.Pod
	pod.Plan.StopTimeout = 50*time.Millisecond - killPatience - rest
	if err := s.Stop(t.Context(), &pod); err == nil || !strings.Contains(err.Error(), "has not ended within 50ms") {
		t.Error(err)
	}
	if err := k.removeDir(); err != nil {
		t.Error(err)
	}
}

// A pod whose lock cannot be looked at may be held by a restart: it is not collected.
func TestAnUnknownLockCountsAsHeld(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "held", "exit 0\n")
	for _, name := range []string{heldFile, shownFile, lockFile} {
		loop, aside := filepath.Join(k.Dir, name), filepath.Join(t.TempDir(), name)
		_ = os.Rename(loop, aside)
		if err := os.Symlink(name, loop); err != nil {
			t.Fatal(err)
		}
		if !k.Kept() {
			t.Errorf("%s: the pod is not kept", name)
		}
		if name == lockFile {
			_ = os.Rename(aside, loop)
			break
		}
		if name == heldFile {
			if err := s.Remove(t.Context(), &k.Pod, true); !errors.Is(err, ErrHeld) {
				t.Errorf("removed: %v", err)
			}
		}
		if err := os.Remove(loop); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.removeDir(); err != nil {
		t.Error(err)
	}
}
