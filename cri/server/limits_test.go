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
