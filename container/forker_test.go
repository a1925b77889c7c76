package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"
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
	// The thread that has made the mounts may not have ended yet.
	surroundings.Eventually(t, "one more thread has / and /proc alone", func() bool { return threadsWithTwoMounts(t) == before+1 })
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
