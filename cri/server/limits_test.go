package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/cgroups"
)

// What is written into a cgroup that has gone fails for another reason than a limit that the kernel does not know.
func TestSettingsOfAContainerThatHasEnded(t *testing.T) {
	group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
	file := filepath.Join(group.Dir(group.Hierarchies[0]), "app", "memory.oom.group")
	set := func(below, file string) error {
		return applySetting(group, below, records.Setting{File: file, Text: "1"})
	}
	if err := set("app", "memory.oom.group"); !errors.Is(err, errNoGroup) {
		t.Errorf("no cgroup: %v", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := set("app", "memory.oom.group"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "1" {
		t.Errorf("%q, %v", text, err)
	}
	if err := set("app", "memory.unknown"); err == nil || errors.Is(err, errNoGroup) {
		t.Errorf("no file: %v", err)
	}
}

// A limit of memory that is not lowered is written whatever the app uses; a lower one only above that.
func TestLimitsOfMemoryThatAreFull(t *testing.T) {
	group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
	r := records.Container{App: "app"}
	dir := filepath.Join(group.Dir(group.Hierarchies[0]), appGroup(r))
	for _, test := range []struct {
		now, asked string
		refused    bool
	}{
		{"4096000", "4096000", false},
		{"4096000", "8192000", false},
		{"max", "8192000", false},
		{"8192000", "4096000", true},
		{"max", "4096000", true},
	} {
		writeFiles(t, dir, map[string]string{"memory.max": test.now, "memory.current": "4096000"})
		err := change(group, r, []records.Setting{{File: "memory.max", Text: test.asked}})
		text, _ := os.ReadFile(filepath.Join(dir, "memory.max"))
		if written := string(text) == test.asked; (err != nil) != test.refused || written == test.refused {
			t.Errorf("%s to %s: %v, %q", test.now, test.asked, err, text)
		}
	}
}

// A stager that the OOM killer may choose is worth less to it than each process of its app, in a cgroup of any limit.
func TestAppsAreChosenBeforeTheStager(t *testing.T) {
	for _, tt := range []struct {
		limit  string
		stager int
		want   int64
	}{
		{"67108864", -1000, -1000},
		{"67108864", 0, 251},
		{"67108864", -999, -748},
		{"1073741824", 500, 516},
		{"16777216", 0, 1000},
		{"0", 0, 1000},
	} {
		group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
		dir := group.Dir(group.Hierarchies[0])
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "memory.max"), []byte(tt.limit), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := lowestScore(group, tt.stager); err != nil || got != tt.want {
			t.Errorf("%v: %d, %v", tt, got, err)
		}
	}
	group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
	if got, err := lowestScore(group, 0); err != nil || got < 1 || got > 100 {
		t.Errorf("without a limit: %d, %v", got, err)
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
