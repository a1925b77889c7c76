package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/container"
)

// Whatever links an image has, only files in its own root are replaced.
func TestTargetsStayInTheRoot(t *testing.T) {
	root, outside, source := t.TempDir(), t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim")
	err := errors.Join(
		os.WriteFile(victim, nil, 0o600), os.WriteFile(filepath.Join(root, "file"), nil, 0o600),
		os.Symlink(outside, filepath.Join(root, "absolute")), os.Symlink(victim, filepath.Join(root, "last")),
		os.Symlink(strings.Repeat("../", 20)+outside, filepath.Join(root, "relative")), os.Symlink("loop", filepath.Join(root, "loop")),
	)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	for _, target := range []string{"/file", "/missing/x", "/absolute/victim", "/relative/victim", "/last", "/../file"} {
		mounts := []container.Mount{{Source: source, Target: target, Type: "bind"}}
		if err := prepareTargets(root, mounts, log); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	if err := prepareTargets(root, []container.Mount{{Source: source, Target: "/loop/x", Type: "bind"}}, log); err == nil {
		t.Error("a loop of links is no error")
	}
	if info, err := os.Lstat(victim); err != nil || !info.Mode().IsRegular() {
		t.Errorf("a file outside is %v, %v", info, err)
	}
	if info, err := os.Lstat(filepath.Join(root, "file")); err != nil || info.Mode() != os.ModeDir|0o755 {
		t.Errorf("the file in the root is %v, %v", info, err)
	}
	if strings.Count(said.String(), "hides") != 1 {
		t.Errorf("the log says\n%s", said.String())
	}
}
