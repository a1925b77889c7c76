package waiter

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/firstprocess"
)

// cgroupOfVersion2 makes a cgroup for a test, and returns its folder.
func cgroupOfVersion2(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("stager-test-waiter-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(t.TempDir())))
	if err := daemon.MakeCgroup(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.RemoveCgroup(name); err != nil {
			t.Error(err)
		}
	})
	mounts, err := daemon.Hierarchies()
	for _, mount := range mounts {
		dir := filepath.Join(mount, name)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil {
			return dir
		}
	}
	t.Fatal("no hierarchy of version 2 is mounted: ", err)
	return ""
}

// With cgroups of version 2 alone, neither the waiter nor the supervisor stays in the cgroup that the daemon has made,
// which could not divide its resources among the apps. A stager that cannot leave it does not start.
func TestTheDaemonsCgroupIsLeftFree(t *testing.T) {
	write := func(file, text string) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, file)
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0))
		}
	}
	for name, test := range map[string]struct {
		before  func(dir string) error
		message string
	}{
		"first stager":       {func(string) error { return nil }, ""},
		"next stager":        {func(dir string) error { return os.Mkdir(filepath.Join(dir, names.Program), 0o755) }, ""},
		"no cgroup is left":  {write("cgroup.max.descendants", "0"), "make cgroup /sys/fs/cgroup/" + names.Program + ": Resource temporarily unavailable"},
		"threads' neighbour": {write("threads/cgroup.type", "threaded"), "enter cgroup /sys/fs/cgroup/" + names.Program + ": Operation not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cgroupOfVersion2(t)
			if err := test.before(dir); err != nil {
				t.Fatal(err)
			}
			folder, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			cmd, _, _ := failingWaiter(t, failing.Call{}, append(firstprocess.Environment("watch", unix.CLONE_NEWPID), cgroupVariable+"=1")...)
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd())}
			var messages strings.Builder
			cmd.Stderr = &messages
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			leaf, _ := os.ReadFile(filepath.Join(dir, names.Program, "cgroup.procs"))
			_, _ = cmd.Process.Kill(), cmd.Wait()
			if test.message != "" {
				if want := names.Program + ": " + test.message + "\n"; messages.String() != want {
					t.Errorf("the supervisor says %q, stderr %q, want %q", line, messages.String(), want)
				}
				return
			}
			if line != "up\n" || err != nil || len(procs) > 0 || !strings.Contains("\n"+string(leaf), fmt.Sprintf("\n%d\n", cmd.Process.Pid)) {
				t.Errorf("the supervisor says %q; %v; in the daemon's cgroup are %q, in its leaf %q; stderr %q", line, err, procs, leaf, messages.String())
			}
		})
	}
}
