package pods

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A pod that is being restarted keeps its folder, with its volumes, against its plan and against whoever deletes ended pods.
func TestAPodThatIsHeldStays(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "held", "exit 0\n")
	k.Plan.Volumes = []Volume{{Name: "data", Mode: 0o755}}
	release, err := k.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Hold(); err == nil || !strings.Contains(err.Error(), `"held" is being restarted`) {
		t.Errorf("held twice: %v", err)
	}
	if _, err := k.Run(t.Context(), false, noted); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Collect(t.Context()); len(done) != 0 || err != nil {
		t.Errorf("collected %v, %v", done, err)
	}
	p, err := s.Find("held")
	if err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		if err := s.Remove(t.Context(), p, force); err == nil || !strings.Contains(err.Error(), "is being restarted") {
			t.Errorf("removed, force %t: %v", force, err)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, volumesDir, "data")); err != nil {
		t.Error(err)
	}
	release()
	if err := s.Remove(t.Context(), p, false); err != nil {
		t.Error(err)
	}
	if _, err := p.Hold(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pod that is gone is held: %v", err)
	}
}

// A pod whose logs are shown stays when ended pods are collected; a restart or a deletion does not wait.
func TestLogsThatAreShownAreNotCollected(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "shown", "exit 3\n")
	shown, err := k.KeepLogs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Collect(t.Context()); len(done) != 0 || err != nil || !k.Kept() {
		t.Errorf("collected %v, %v", done, err)
	}
	release, err := k.Hold()
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := s.Remove(t.Context(), &k.Pod, false); err != nil || exists(k.Dir) {
		t.Errorf("removed: %v", err)
	}
	shown()
	k = s.newPod(t, "shown", "exit 3\n")
	k.Plan.LogDir = "/logs"
	if shown, err = k.KeepLogs(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if why := k.StagerFailed(); why == "" {
		t.Error("a stager without last states has not failed")
	}
	shown()
	if done, err := s.Collect(t.Context()); len(done) != 1 || err != nil {
		t.Errorf("collected %v, %v", done, err)
	}
	if why := k.StagerFailed(); why != "" {
		t.Errorf("a pod that is gone: %s", why)
	}
}

// A restart whose volumes somebody has deleted is an error, and not a pod with empty ones.
func TestVolumesThatAreGoneAreNotReplaced(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "old", "exit 0\n")
	k.Plan.Volumes = []Volume{{Name: "data", Mode: 0o755}}
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(k.Dir, volumesDir)); err != nil {
		t.Fatal(err)
	}
	next := s.newPod(t, "new", "exit 0\n")
	if err := s.MoveVolumes(&k.Pod, next); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(next.Dir); err == nil {
		t.Error("the new pod is left")
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

// The next one that holds a pod has the file that is there, and not one that was removed while it waited.
func TestAPodIsHeldByTheFileThatIsThere(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "held", "")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				release, err := k.Hold()
				if err != nil {
					continue // another one holds it
				}
				if !k.held() {
					t.Error("held by a file that is gone")
				}
				release()
			}
		})
	}
	all.Wait()
	if err := k.removeDir(); err != nil {
		t.Error(err)
	}
}

// A lock that cannot be looked at keeps its pod, and is an error of what collects the pods.
func TestALockThatCannotBeLookedAtIsAnErrorOfACollection(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "ended", "exit 0\n")
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(k.Dir, heldFile)
	if err := os.Symlink(heldFile, held); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Collect(t.Context()); len(done) != 0 || !errors.Is(err, unix.ELOOP) {
		t.Errorf("collected %v, %v, want %v", done, err, unix.ELOOP)
	}
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Collect(t.Context()); len(done) != 1 || err != nil {
		t.Errorf("collected %v, %v", done, err)
	}
}
