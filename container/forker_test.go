package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The children of a forker begin with the root and /proc, however many mounts the supervisor has.
func TestTheForkerHasTwoMounts(t *testing.T) {
	before := threadsWithTwoMounts(t)
	mounts, err := bareMounts()
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	f, err := newForker(mounts)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if after := threadsWithTwoMounts(t); after != before+1 {
		t.Errorf("%d threads have / and /proc alone, had %d", after, before)
	}
}

func threadsWithTwoMounts(t *testing.T) (n int) {
	t.Helper()
	tables, err := filepath.Glob("/proc/self/task/*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tables {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // of a thread that has ended
		}
		points := map[string]bool{}
		for line := range strings.Lines(string(table)) {
			points[strings.Fields(line)[4]] = true
		}
		if len(points) == 2 && points["/"] && points["/proc"] {
			n++
		}
	}
	return n
}
