package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A writable layer is walked once in a while, and one that was removed is forgotten.
func TestWritableLayersAreNotWalkedForEachCall(t *testing.T) {
	var d diskUsages
	dir, now := t.TempDir(), time.Now()
	grow := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	grow("a")
	first, when := d.of("id", now, dir)
	if first < 1<<20 || !when.Equal(now) {
		t.Errorf("%d at %s", first, when)
	}
	grow("b")
	if again, when := d.of("id", now.Add(diskUsageAge-time.Second), dir); again != first || !when.Equal(now) {
		t.Errorf("%d at %s although the last walk was a moment ago", again, when)
	}
	later := now.Add(diskUsageAge)
	if again, when := d.of("id", later, dir); again < 2<<20 || !when.Equal(later) {
		t.Errorf("%d at %s", again, when)
	}
	d.of("other", later.Add(3*diskUsageAge), dir)
	if len(d.known) != 1 {
		t.Errorf("%v", d.known)
	}
}
