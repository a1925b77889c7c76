package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// endedWithData is a pod with an empty volume that has ended, and has data in the volume.
func endedWithData(t *testing.T, s *Store) *Pod {
	t.Helper()
	pod := s.newPod(t, "old", "")
	pod.Plan.Volumes = []Volume{{Name: "data", Mode: 0o755}}
	if _, err := pod.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pod.emptyVolume(pod.Plan.Volumes[0]), "kept"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := pod.Pod
	t.Cleanup(func() {
		if err := s.Remove(context.WithoutCancel(t.Context()), &ended, false); err != nil {
			t.Error(err)
		}
	})
	return &ended
}

// again makes a pod that restarts another.
func (s *Store) again(t *testing.T, old *Pod, name string) *Keeper {
	t.Helper()
	plan := old.Plan.Again()
	plan.UUID, plan.Name = fakeUUID(name), name
	k, err := s.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func hasData(pod *Pod) bool {
	data, _ := os.ReadFile(filepath.Join(pod.Dir, volumesDir, "data", "kept"))
	return string(data) == "data"
}

// The volumes of an ended pod return to it when the pod that restarts it does not start.
func TestVolumesReturnWhenARestartFails(t *testing.T) {
	s := newStore(t)
	old := endedWithData(t, s)
	next := s.again(t, old, "next")
	next.runScript(t, "exit 1\n")
	if err := s.MoveVolumes(old, next); err != nil {
		t.Fatal(err)
	}
	if hasData(old) || !hasData(&next.Pod) {
		t.Fatal("the volumes have not moved")
	}
	if _, err := next.Run(t.Context(), true, noted); err == nil {
		t.Error("a stager that fails is no error")
	}
	if !hasData(old) {
		t.Error("the data is lost")
	}
}

// A restart that was killed when it had moved the volumes leaves a dead pod with them. The next restart takes them from
// there, and the deletion of the dead pod does not return others.
func TestVolumesOfAKilledRestartGoOn(t *testing.T) {
	s := newStore(t)
	old := endedWithData(t, s)
	dead := s.again(t, old, "dead")
	if err := s.MoveVolumes(old, dead); err != nil {
		t.Fatal(err)
	}
	if err := dead.lock.Close(); err != nil { // as the kernel does when its process is killed
		t.Fatal(err)
	}
	next := s.again(t, old, "next")
	if err := s.MoveVolumes(old, next); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), &dead.Pod, true); err != nil {
		t.Error(err)
	}
	if hasData(old) || !hasData(&next.Pod) {
		t.Error("the new pod does not have the data")
	}
	if err := next.removeDir(); err != nil {
		t.Error(err)
	}
	if !hasData(old) {
		t.Error("the data is lost")
	}
}

// A new pod that cannot take the volumes is deleted, and the ended pod keeps them.
func TestVolumesThatCannotMoveStay(t *testing.T) {
	s := newStore(t)
	old := endedWithData(t, s)
	next := s.again(t, old, "next")
	if err := os.MkdirAll(filepath.Join(next.Dir, volumesDir, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.MoveVolumes(old, next); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(next.Dir); err == nil {
		t.Error("the new pod is left")
	}
	if !hasData(old) {
		t.Error("the data is lost")
	}
}

// A restart that was killed before it had moved the volumes leaves a dead pod without. The next restart of that pod takes
// them from where they are.
func TestVolumesAreFoundAfterAKilledRestart(t *testing.T) {
	s := newStore(t)
	old := endedWithData(t, s)
	dead := s.again(t, old, "dead")
	if err := dead.lock.Close(); err != nil {
		t.Fatal(err)
	}
	next := s.again(t, &dead.Pod, "next")
	if err := s.MoveVolumes(&dead.Pod, next); err != nil {
		t.Fatal(err)
	}
	if hasData(old) || !hasData(&next.Pod) {
		t.Error("the new pod does not have the data")
	}
	if err := next.removeDir(); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), &dead.Pod, true); err != nil {
		t.Error(err)
	}
	if !hasData(old) {
		t.Error("the data is lost")
	}
}
