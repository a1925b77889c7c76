package records

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A record that is damaged is left out. One that cannot be read now, such as by a process without free descriptors, is
// an error: its container would be taken for removed.
func TestOnlyDamagedRecordsAreLeftOut(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var sound []string
	for range 3 {
		r := Container{ID: NewID(), Name: "a"}
		if err := s.WriteContainer(r); err != nil {
			t.Fatal(err)
		}
		sound = append(sound, r.ID)
	}
	path := func(i int) string { return filepath.Join(s.containerDir(sound[i]), "container.json") }
	if err := os.Truncate(path(0), 0); err != nil {
		t.Fatal(err)
	}
	list, err := s.Containers()
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if err := errors.Join(os.Remove(path(1)), os.Symlink(path(1), path(1))); err != nil {
		t.Fatal(err)
	}
	if list, err = s.Containers(); err == nil {
		t.Errorf("%v although one cannot be read", list)
	}
	if _, err := s.Container(sound[1]); err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, damaged, err := s.Damaged(); err != nil || !slices.Equal(damaged, sound[:1]) {
		t.Errorf("%v, %v, want %v", damaged, err, sound[:1])
	}
}
