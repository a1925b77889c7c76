package pods

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

// goesOn is the script of a stager that runs until SIGTERM, and then exits with 7.
const goesOn = "trap 'exit 7' TERM\nwhile :; do /busybox sleep 0.1; done\n"

// startUnattended starts the pod; attend, when the test calls it, returns with ctx.
func startUnattended(t *testing.T, k *Keeper) (attend func(ctx context.Context) error) {
	t.Helper()
	a, err := k.StartUnattended(t.Context(), testStarter(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Attend
}

func testStarter() []string { return []string{"test", starterWord} }

// letGo ends what has started the pod.
func letGo(t *testing.T, attend func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := attend(ctx); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) get(t *testing.T, uuid string) *Pod {
	t.Helper()
	pod, err := s.Get(uuid)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func (s *Store) discard(t *testing.T, uuid string) {
	t.Helper()
	if err := s.Remove(t.Context(), s.get(t, uuid), true); err != nil {
		t.Error(err)
	}
}

func TestAnUnattendedPodHasTheExitOfItsStager(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "exit", goesOn)
	attend := startUnattended(t, k)
	defer s.discard(t, k.Plan.UUID)
	pod := s.get(t, k.Plan.UUID)
	if pod.State.Phase != Running || pod.State.Monitor.PID != 0 {
		t.Errorf("%+v", pod.State)
	}
	if err := pod.State.Stager.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := attend(t.Context()); err != nil {
		t.Error(err)
	}
	if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Exited || pod.exit() != (Exit{Code: 7}) {
		t.Errorf("%+v, exit %+v", pod.State, pod.exit())
	}
	if exists(filepath.Join(pod.Dir, rootDir)) {
		t.Error("the stager's root is left")
	}
}

// A stager that ends at once has been up if it has closed its ready descriptor with another exit status than 1.
func TestAnUnattendedPodMayBeShort(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "short", "exit 3\n")
	if err := startUnattended(t, k)(t.Context()); err != nil {
		t.Error(err)
	}
	defer s.discard(t, k.Plan.UUID)
	if pod := s.get(t, k.Plan.UUID); pod.State.Phase != Exited || pod.exit() != (Exit{Code: 3}) {
		t.Errorf("%+v, exit %+v", pod.State, pod.exit())
	}
}

func TestAnUnattendedPodThatDoesNotStartIsDeleted(t *testing.T) {
	k := newStore(t).newPod(t, "never", "")
	k.runScript(t, "echo no >&2; exit 1\n")
	if _, err := k.StartUnattended(t.Context(), testStarter(), nil); err == nil || exists(k.Dir) {
		t.Errorf("%v, and the pod's folder is there: %t", err, exists(k.Dir))
	}
	k = newStore(t).newPod(t, "enter", "")
	deaf := errors.New("no namespace")
	if _, err := k.StartUnattended(t.Context(), testStarter(), func() error { return deaf }); !errors.Is(err, deaf) || exists(k.Dir) {
		t.Errorf("%v, and the pod's folder is there: %t", err, exists(k.Dir))
	}
}

// The process that has started the pod has ended. Nobody takes the pod for a dead one, and the next process attends it.
func TestAnUnattendedPodOutlivesWhoStartedIt(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "alive", goesOn)
	letGo(t, startUnattended(t, k))
	pod := s.get(t, k.Plan.UUID)
	if pod.Ended() || pod.State.Phase != Running {
		t.Errorf("%+v", pod.State)
	}
	if collected, err := s.Collect(t.Context()); err != nil || len(collected) > 0 {
		t.Errorf("%v is collected, %v", collected, err)
	}
	a, err := s.Adopt(t.Context(), pod)
	if err != nil || a == nil {
		t.Fatalf("%v, %v", a, err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if again, err := s.Adopt(soon, pod); again != nil || err == nil {
		t.Errorf("it is adopted twice: %v, %v", again, err)
	}
	attended := make(chan error)
	go func() { attended <- a.Attend(t.Context()) }()
	if err := s.End(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if err := <-attended; err != nil {
		t.Error(err)
	}
	if pod.State.Phase != Exited || pod.exit() != killed() {
		t.Errorf("%+v, exit %+v", pod.State, pod.exit())
	}
	if a, err := s.Adopt(t.Context(), pod); a != nil || err != nil {
		t.Errorf("a pod that has ended is adopted: %v, %v", a, err)
	}
	s.discard(t, k.Plan.UUID)
}

// A stager that has ended while nobody looked has left the apps' last states, or was killed.
func TestTheEndOfAnUnattendedPodIsFoundLater(t *testing.T) {
	for name, want := range map[string]Exit{"wrote": {}, "killed": killed()} {
		s := newStore(t)
		k := s.newPod(t, name, goesOn)
		k.Plan.LogDir = "/logs"
		letGo(t, startUnattended(t, k))
		pod := s.get(t, k.Plan.UUID)
		if name == "wrote" {
			if err := os.WriteFile(filepath.Join(pod.logsPath(), names.LastStatus), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := pod.State.Stager.signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		surroundings.Eventually(t, "the stager has ended", func() bool { return s.get(t, k.Plan.UUID).Ended() })
		a, err := s.Adopt(t.Context(), pod)
		if err != nil || a == nil {
			t.Fatalf("%v, %v", a, err)
		}
		if err := a.Attend(t.Context()); err != nil {
			t.Error(err)
		}
		if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Exited || pod.exit() != want {
			t.Errorf("%s: %+v, exit %+v", name, pod.State, pod.exit())
		}
		s.discard(t, k.Plan.UUID)
	}
}

// Nobody was told that a pod is up whose starter was killed before, also while it gave the start up: the pod counts as
// dead, and is ended.
func TestAnUnattendedPodThatIsHalfStartedIsEnded(t *testing.T) {
	for _, phase := range []Phase{Starting, Stopping} {
		s := newStore(t)
		k := s.newPod(t, "half", goesOn)
		letGo(t, startUnattended(t, k))
		k.State.Phase = phase
		if err := k.save(); err != nil {
			t.Fatal(err)
		}
		pod := s.get(t, k.Plan.UUID)
		if pod.State.Phase != Dead {
			t.Errorf("%+v", pod.State)
		}
		a, err := s.Adopt(t.Context(), pod)
		if err != nil || a == nil {
			t.Fatalf("%v, %v", a, err)
		}
		if err := a.Attend(t.Context()); err != nil {
			t.Error(err)
		}
		if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Exited || pod.exit() != killed() {
			t.Errorf("%+v, exit %+v", pod.State, pod.exit())
		}
		s.discard(t, k.Plan.UUID)
	}
}

// A take-down that fails keeps the exit, and shows a pod that has ended, until the next one works.
func TestATakeDownOfAnUnattendedPodIsTriedAgain(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "again", goesOn)
	attend := startUnattended(t, k)
	busy := filepath.Join(k.Dir, rootDir, "busy")
	if err := os.Mkdir(busy, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	pod := s.get(t, k.Plan.UUID)
	if err := pod.State.Stager.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := attend(t.Context())
	if umount := unix.Unmount(busy, 0); umount != nil {
		t.Fatal(umount)
	}
	if pod = s.get(t, k.Plan.UUID); err == nil || pod.State.Phase != Dead || pod.exit() != (Exit{Code: 7}) || pod.State.Ended.IsZero() {
		t.Errorf("%v, %+v, exit %+v", err, pod.State, pod.exit())
	}
	failed := pod.State.Ended
	a, err := s.Adopt(t.Context(), pod)
	if err != nil || a == nil {
		t.Fatalf("%v, %v", a, err)
	}
	if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Dead {
		t.Errorf("while it is tried again: %+v", pod.State)
	}
	if err := a.Attend(t.Context()); err != nil {
		t.Error(err)
	}
	if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Exited || pod.exit() != (Exit{Code: 7}) || !pod.State.Ended.Equal(failed) {
		t.Errorf("%+v, exit %+v", pod.State, pod.exit())
	}
	s.discard(t, k.Plan.UUID)
}

// What a process says that cannot become the stager is the reason of the failed start.
func TestAnUnattendedStagerThatIsMissingIsNamed(t *testing.T) {
	k := newStore(t).newPod(t, "missing", "")
	k.Plan.Exec = []string{"/no/such/stager"}
	const want = "start stager: execve /no/such/stager: no such file or directory"
	if _, err := k.StartUnattended(t.Context(), testStarter(), nil); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Stop asks the stager itself, and leaves it its time.
func TestAnUnattendedPodIsStopped(t *testing.T) {
	for _, attended := range []bool{false, true} {
		s := newStore(t)
		k := s.newPod(t, "stop", "trap 'echo asked; exit 0' TERM\nwhile :; do /busybox sleep 0.1; done\n")
		k.Plan.StopTimeout = time.Minute
		attend := startUnattended(t, k)
		if attended {
			go func() { _ = attend(t.Context()) }()
		} else {
			letGo(t, attend)
		}
		pod := s.get(t, k.Plan.UUID)
		pod.Plan.StopTimeout = time.Minute
		early, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pod.endStager(early); err == nil || pod.awaitStager(early) {
			t.Errorf("a caller that gives up has the stager killed: %v", err)
		}
		if err := s.Stop(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(pod.LogPath()); err != nil || lastLine(pod.LogPath(), 0) == "" {
			t.Errorf("the stager was not asked: %q, %v", log, err)
		}
		if pod = s.get(t, k.Plan.UUID); pod.State.Phase != Exited {
			t.Errorf("%+v", pod.State)
		}
		s.discard(t, k.Plan.UUID)
	}
}
