package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// monitorWord makes this program a detached monitor, and starterWord a stager.
const (
	monitorWord = "monitor-of-a-test"
	starterWord = "starter-of-a-test"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == monitorWord {
		ctx, _ := signal.NotifyContext(context.Background(), unix.SIGTERM)
		if err := RunDetached(ctx, os.Args[2], nil, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == starterWord {
		fmt.Fprintln(os.Stderr, Exec(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) == 5 && os.Args[1] == callerWord {
		os.Exit(callAsTest(os.Args[2], os.Args[3], os.Args[4]))
	}
	if len(os.Args) == 5 && os.Args[1] == stopperWord {
		os.Exit(stopAsTest(os.Args[2], os.Args[3], os.Args[4]))
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

func startTestMonitor(t *testing.T, s *Store) *Monitor {
	t.Helper()
	m, err := s.StartMonitor([]string{"test", monitorWord})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestAMonitorThatWaitsRunsThePodThatItGets(t *testing.T) {
	s := newStore(t)
	m := startTestMonitor(t, s)
	pod := s.newPodOf(t, m.UUID, "later", "while :; do /busybox sleep 1000; done\n")
	if err := m.HandOver(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	found, err := s.Get(m.UUID)
	if err != nil || found.State.Phase != Running || found.State.Monitor.PID != m.process.Pid {
		t.Errorf("%+v, %v; want the monitor %d", found.State, err, m.process.Pid)
	}
	if err := s.Remove(t.Context(), found, true); err != nil {
		t.Error(err)
	}
	awaitNoProcess(t, m.process.Pid)
}

// awaitNoProcess waits until a process is gone, and is not even a zombie.
func awaitNoProcess(t *testing.T, pid int) {
	t.Helper()
	surroundings.Eventually(t, "the monitor's process is gone", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Nothing is left of a monitor when there will be no pod, or its starter has been killed, which the monitor
// sees in the same way.
func TestAMonitorWithoutAPodEnds(t *testing.T) {
	s := newStore(t)
	m := startTestMonitor(t, s)
	control := m.control
	m.control = nil
	if err := control.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.ended:
	case <-time.After(time.Minute):
		_ = m.process.Kill()
		t.Error("the monitor waits still")
	}
}

func TestThePodOfAMonitorThatWasKilledIsDeleted(t *testing.T) {
	s := newStore(t)
	m := startTestMonitor(t, s)
	pod := s.newPodOf(t, m.UUID, "unlucky", "/busybox sleep 1000\n")
	if err := m.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-m.ended
	err := m.HandOver(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), `launch pod "unlucky": the monitor ended without a report: it was killed, or could not read the configuration again`) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(pod.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod's folder: %v", err)
	}
}

// A detached pod that is deleted at its end may be gone when its starter hears that it was up.
func TestAShortPodThatIsDeletedHasStarted(t *testing.T) {
	s := newStore(t)
	m := startTestMonitor(t, s)
	pod := s.newPodOf(t, m.UUID, "short", "exit 0\n")
	pod.Plan.Remove = true
	if err := errors.Join(jsonfile.Write(filepath.Join(pod.Dir, planFile), pod.Plan), pod.makeRoot()); err != nil {
		t.Fatal(err)
	}
	control := m.control
	m.control = nil
	defer control.Close()
	if err := unix.Sendmsg(int(control.Fd()), []byte{0}, unix.UnixRights(int(pod.lock.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = pod.lock.Close()
	<-m.ended // the monitor has deleted the pod
	data, err := io.ReadAll(control)
	if err == nil {
		err = pod.accept(data)
	}
	if err != nil || pod.State.Stager.PID == 0 || pod.State.Monitor.PID != m.process.Pid {
		t.Errorf("%+v, %v; want the monitor %d", pod.State, err, m.process.Pid)
	}
}
