package pods

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
	if _, err := s.Collect(); err != nil {
		t.Error(err)
	}
}
