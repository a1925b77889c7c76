package pods

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// What a killed process has left of a pod is deleted, and no pod that is listed.
func TestRemainsOfPodsAreDeleted(t *testing.T) {
	s := newStore(t)
	whole := s.newPod(t, "whole", "")
	if err := whole.lock.Close(); err != nil {
		t.Fatal(err)
	}
	for name, missing := range map[string]string{"half made": stateFile, "half deleted": planFile} {
		pod := s.newPod(t, name, "")
		err := os.MkdirAll(filepath.Join(pod.Dir, rootDir, "tmp"), 0o700)
		if err = errors.Join(err, os.Remove(filepath.Join(pod.Dir, missing)), pod.lock.Close()); err != nil {
			t.Fatal(err)
		}
	}
	living := s.newPod(t, "being made", "")
	if err := os.Remove(filepath.Join(living.Dir, planFile)); err != nil {
		t.Fatal(err)
	}
	if err := s.CollectRemains(); err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(s.dir, "*-*"))
	if err != nil || len(folders) != 2 {
		t.Errorf("%v, %v, want those of two pods", folders, err)
	}
	if err := living.removeDir(); err != nil {
		t.Error(err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

// A pod may be alive whose record cannot be read: nobody takes its name, its ports or its images for free.
func TestARecordThatCannotBeReadIsNoDamage(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "alive", "")
	path := filepath.Join(k.Dir, planFile)
	if err := errors.Join(os.Rename(path, path+".kept"), os.Symlink(planFile, path)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := k.removeDir(); err != nil {
		t.Error(err)
	}
}

// Whoever collects makes no lock in the folder of a pod that is being removed.
func TestPodsAreRemovedBesideACollector(t *testing.T) {
	s := newStore(t)
	over := make(chan struct{})
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if _, err := s.Collect(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		if err := s.newPod(t, "short", "").removeDir(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	collecting.Wait()
}

// A deletion that fails may be tried again by the same process.
func TestAFailedRemovalReleasesThePod(t *testing.T) {
	s := newStore(t)
	k := s.newPod(t, "busy", "exit 0\n")
	k.Plan.Volumes = []Volume{{Name: "data", Mode: 0o755}}
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	mount := k.emptyVolume(k.Plan.Volumes[0])
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	err := s.Remove(t.Context(), &k.Pod, false)
	if unmounted := unix.Unmount(mount, 0); !errors.Is(err, unix.EBUSY) || unmounted != nil {
		t.Errorf("%v, %v", err, unmounted)
	}
	if k.Locked() {
		t.Error("the pod is still locked")
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}
