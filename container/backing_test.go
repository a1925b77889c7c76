package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/spec"
)

// The domain allows renames and links in the folders behind the root as well, where
// aufs makes them as the app, and in no others. In these tests the app has such a
// folder as its standard input, which leads out of the root. Without Landlock there is no domain, and the app may
// do it anywhere.
const renameAndLink = "cd /proc/self/fd/0/ && mv a/f b/f; ln b/g a/g; rm b/h"

func TestDomainAllowsBackingFolders(t *testing.T) {
	for name, backed := range map[string]bool{"backing folder": true, "another folder": false} {
		t.Run(name, func(t *testing.T) {
			r, folder := newRuntime(t), newFolder(t)
			s := testSpec(busyboxRoot(t), "sh", "-c", renameAndLink)
			s.Backing = []string{t.TempDir(), t.TempDir()}
			if backed {
				s.Backing[1] = folder.path
			}
			c := containerOf(t, r, s)
			text, _ := runIn(t, c, folder.open(t))
			folder.check(t, backed || !r.landlock, text)
			if err := c.Destroy(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A command of run is in a domain with the same rules.
func TestDomainOfCommandAllowsBackingFolders(t *testing.T) {
	for name, backed := range map[string]bool{"backing folder": true, "another folder": false} {
		t.Run(name, func(t *testing.T) {
			r, folder := newRuntime(t), newFolder(t)
			s := testSpec(busyboxRoot(t), "sleep", "1000")
			s.Backing = []string{t.TempDir(), t.TempDir()}
			if backed {
				s.Backing[1] = folder.path
			}
			c, _ := startSleeper(t, r, s)
			p, err := c.Exec(rootCommand("sh", "-c", renameAndLink), spec.Stdio{Stdin: folder.open(t)})
			if err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			folder.check(t, backed || !r.landlock, "")
		})
	}
}

func TestAMissingBackingFolderIsReported(t *testing.T) {
	s := testSpec(busyboxRoot(t), "true")
	s.Backing = []string{filepath.Join(t.TempDir(), "missing")}
	c := containerOf(t, newRuntime(t), s)
	_, err := c.Start(spec.Stdio{})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), s.Backing[0]) {
		t.Errorf("got %v", err)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}

// changedFolder is a folder for renameAndLink.
type changedFolder struct {
	path string
	file os.FileInfo // a/f
}

func newFolder(t *testing.T) changedFolder {
	t.Helper()
	folder := changedFolder{path: t.TempDir()}
	for _, sub := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(folder.path, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"a/f", "b/g", "b/h"} {
		if err := os.WriteFile(filepath.Join(folder.path, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	folder.file = folder.stat("a/f")
	return folder
}

func (f changedFolder) open(t *testing.T) *os.File {
	t.Helper()
	opened, err := os.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return opened
}

// stat returns nil if there is no such file.
func (f changedFolder) stat(path string) os.FileInfo {
	info, err := os.Lstat(filepath.Join(f.path, path))
	if err != nil {
		return nil
	}
	return info
}

// check distinguishes a rename from a copy, which is what mv makes where rename(2) is denied.
func (f changedFolder) check(t *testing.T, allowed bool, text string) {
	t.Helper()
	moved := f.stat("b/f") != nil && os.SameFile(f.file, f.stat("b/f"))
	linked, removed := f.stat("a/g") != nil, f.stat("b/h") == nil
	if moved != allowed || linked != allowed || !removed {
		t.Errorf("moved %t, linked %t, want %t; removed %t; the app prints %q", moved, linked, allowed, removed, text)
	}
}
