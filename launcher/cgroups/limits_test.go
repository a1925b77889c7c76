package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/internal/cgroupfile"
)

func TestAGroupGetsTheLowestLimitAroundIt(t *testing.T) {
	const none = "9223372036854771712"
	for name, tt := range map[string]struct {
		file, root, outer, parent, own, want string
		memory                               int64
	}{
		"the parent's":           {"memory.max", "", "max", "1000", "max", "1000", 1000},
		"the parent's parent's":  {"memory.max", "", "900", "1000", "max", "900", 900},
		"its own":                {"memory.max", "", "900", "1000", "800", "800", 800},
		"none":                   {"memory.max", "", "max", "max", "max", "max", cgroupfile.NoLimit},
		"the mounted group's":    {"memory.max", "700", "max", "max", "max", "700", 700},
		"memory of version 1":    {"memory.limit_in_bytes", none, none, "1000", none, "1000", 1000},
		"no memory limit in v1":  {"memory.limit_in_bytes", none, none, none, none, none, cgroupfile.NoLimit},
		"tasks":                  {"pids.max", "", "max", "100", "max", "100", cgroupfile.NoLimit},
		"a file that v1 has not": {"memory.swappiness", "60", "50", "40", "60", "60", cgroupfile.NoLimit},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			for path, text := range map[string]string{".": tt.root, "a": tt.outer, "a/b": tt.parent, "a/b/pod": tt.own} {
				if err := os.MkdirAll(filepath.Join(mount, path), 0o755); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(mount, path, tt.file), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g := &Group{Path: "a/b/pod", Hierarchies: []Hierarchy{{Mount: mount}}}
			if err := g.LimitAsAround(); err != nil {
				t.Fatal(err)
			}
			if memory, err := g.MemoryLimit(); err != nil || memory != tt.memory {
				t.Errorf("limit of memory %d, %v", memory, err)
			}
			got, err := os.ReadFile(filepath.Join(mount, "a/b/pod", tt.file))
			if err != nil || strings.TrimSpace(string(got)) != tt.want {
				t.Errorf("%s is %q, %v, want %s", tt.file, got, err, tt.want)
			}
		})
	}
}

// A limit that cannot be read is not taken for none: the kernel would look at the supervisor for a process to kill.
func TestALimitThatCannotBeReadIsAnError(t *testing.T) {
	for _, level := range []string{".", "a", "a/pod"} {
		for name, spoil := range map[string]func(path string) error{
			"unreadable": func(path string) error { return os.Mkdir(path, 0o700) },
			"no number":  func(path string) error { return os.WriteFile(path, []byte("x\n"), 0o600) },
		} {
			mount := t.TempDir()
			path := filepath.Join(mount, level, "memory.max")
			if err := errors.Join(os.MkdirAll(filepath.Join(mount, "a/pod"), 0o700), spoil(path)); err != nil {
				t.Fatal(err)
			}
			g := &Group{Path: "a/pod", Hierarchies: []Hierarchy{{Mount: mount}}}
			if err := g.LimitAsAround(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s in %s: %v, want an error with the path %s", name, level, err, path)
			}
		}
	}
}
