// Package fork makes forks of the project in temporary folders, as docs/fork.md explains, and builds
// and tests them.
//
// STAGER_IMAGES is the folder that tests/images/build.sh has filled; without it the
// repository's own is taken.
package fork

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"
)

// patience bounds the commands of a test whose binary has no time limit.
const patience = 10 * time.Minute

func TestMain(m *testing.M) {
	surroundings.SettleWithBuilt()
	os.Exit(m.Run())
}

// tree is a copy of the project.
type tree struct {
	t   *testing.T
	dir string
}

// copyTree copies the project without what has been built of it.
func copyTree(t *testing.T) tree {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	f := tree{t, filepath.Join(t.TempDir(), "fork")}
	left := []string{filepath.Join(top, ".git"), filepath.Join(top, "bin"), filepath.Join(top, "build/out"), filepath.Join(top, "dist")}
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(left, path) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		target := filepath.Join(f.dir, strings.TrimPrefix(path, top))
		if d.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return copyFile(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

func (f tree) path(name string) string { return filepath.Join(f.dir, name) }

func (f tree) read(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// images is the folder of the built images, which are the same for a fork.
func images(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("STAGER_IMAGES")
	if dir == "" {
		dir = "../../build/out/images"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "busybox.id")); err != nil {
		t.Fatal("make images first: ", err)
	}
	return dir
}

// environment is this process's, without what make and a test of this tree have set.
func environment(more ...string) []string {
	own := []string{"CGO_CFLAGS=", "GOFLAGS=", "GORACE=", "MAKE", "MFLAGS=", "STAGER_", "PWD="}
	kept := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
	})
	// Without a path in it, what has been built of one copy is found in the cache for another.
	return append(append(kept, "GOFLAGS=-trimpath"), more...)
}

// run runs a command in the tree, which must succeed in time, and returns its output.
func (f tree) run(env []string, args ...string) string {
	f.t.Helper()
	deadline, ok := f.t.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
	}
	// Early enough to report what the command printed.
	ctx, cancel := context.WithDeadline(f.t.Context(), deadline.Add(-10*time.Second))
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = f.dir, environment(env...), &output, &output
	// The whole group, so that no test of the fork outlives this one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	begin := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, output.String())
	}
	f.t.Logf("%s: %.1f s", strings.Join(args, " "), time.Since(begin).Seconds())
	return output.String()
}
