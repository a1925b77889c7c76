package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The children of a forker begin with the root and /proc, however many mounts the supervisor has.
func TestTheForkerHasTwoMounts(t *testing.T) {
	f, err := newForker()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	tables, err := filepath.Glob("/proc/self/task/*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, file := range tables {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // of a thread that has ended
		}
		var points []string
		for line := range strings.Lines(string(table)) {
			points = append(points, strings.Fields(line)[4])
		}
		if slices.Sort(points); len(points) < 4 {
			others = append(others, strings.Join(points, " "))
		}
	}
	if len(others) != 1 || others[0] != "/ /proc" {
		t.Errorf("threads with few mounts have %q, want one with / and /proc", others)
	}
}
