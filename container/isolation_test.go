package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/spec"
)

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// probeRoot is a root with busybox and this test program.
func probeRoot(t *testing.T) string {
	t.Helper()
	root := busyboxRoot(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "probe"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// The domain must change nothing else: renames and links between directories work.
func TestDomainLeavesRenameAndLink(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sh", "-ec", "mkdir /a /b; echo x >/a/f; mv /a/f /b/f; ln /b/f /a/l; mv /b /a/b; cat /a/b/f; mkdir /v/d; echo y >/v/f; mv /v/f /v/d/f; ln /v/d/f /v/l; cat /v/l")
	s.Mounts = []spec.Mount{{Source: t.TempDir(), Target: "/v", Recursive: true}}
	if text, status := output(t, r, s); text != "x\ny\n" || status.ExitStatus() != 0 {
		t.Errorf("exit status %d:\n%s", status.ExitStatus(), text)
	}
}

// A working directory is the app's word, or a link that it has made: neither the
// first process nor a command gets out of the root by it, with a domain or without.
func TestWorkingDirectoryStaysInRoot(t *testing.T) {
	for name, landlock := range map[string]bool{"with a domain": true, "without": false} {
		r, root := newRuntime(t), busyboxRoot(t)
		r.landlock = r.landlock && landlock
		other := testSpec(root, "sleep", "1000")
		other.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_PTRACE", "CAP_NET_ADMIN")
		_, otherPID := startSleeper(t, r, other)
		c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
		for link, target := range map[string]string{"root": "/proc/1/root", "cwd": "/proc/1/cwd", "other": procPath(otherPID, "root")} {
			if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{target, "/" + link} {
				t.Run(name+" "+dir, func(t *testing.T) { checkDirectory(t, r, c, root, dir) })
			}
		}
	}
}

func checkDirectory(t *testing.T, r *Runtime, c spec.Container, root, dir string) {
	t.Helper()
	cmd := rootCommand("true")
	cmd.Dir = dir
	if p, err := c.Exec(cmd, spec.Stdio{}); err == nil {
		t.Error("a command starts there")
		<-p.Done()
	} else if !strings.Contains(err.Error(), "working directory "+strconv.Quote(dir)) {
		t.Errorf("error of a command: %v", err)
	}
	s := testSpec(root, "true")
	s.Process.Dir = dir
	app := containerOf(t, r, s)
	if p, err := app.Start(spec.Stdio{}); err == nil {
		t.Error("an app starts there")
		<-p.Done()
	} else if !strings.Contains(err.Error(), "working directory "+strconv.Quote(dir)) {
		t.Errorf("error of an app: %v", err)
	}
	if err := app.Destroy(); err != nil {
		t.Error(err)
	}
}

// An app and a command that name no supplementary groups have none, whatever those of the supervisor are.
func TestNoGroupIsInherited(t *testing.T) {
	before, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setgroups(before); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Setgroups([]int{6, 4321}); err != nil {
		t.Fatal(err)
	}
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	show := []string{"grep", "^Groups", "/proc/self/status"}
	for _, test := range []struct {
		user   string
		groups []int
		want   string
	}{
		{"0", nil, ""}, {"1000", nil, ""}, {"1000", []int{7}, "7"},
	} {
		command := rootCommand(show...)
		command.User, command.SupplementaryGID = test.user, test.groups
		s := testSpec(root, show...)
		s.Process.User, s.Process.SupplementaryGID = test.user, test.groups
		ofCommand, _ := execOutput(t, c, command)
		ofApp, _ := output(t, r, s)
		for who, text := range map[string]string{"an app": ofApp, "a command": ofCommand} {
			if got := strings.TrimSpace(strings.TrimPrefix(text, "Groups:")); got != test.want {
				t.Errorf("%s of user %s with groups %d is in groups %q", who, test.user, test.groups, got)
			}
		}
	}
}

// A group that is no number of the kernel's would become another one.
func TestAGroupThatIsNoNumberIsRefused(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	for _, group := range []int{-1, spec.MaxID + 1, 1 << 32} {
		command := rootCommand("true")
		command.SupplementaryGID = []int{group}
		_, err := c.Exec(command, spec.Stdio{})
		if want := fmt.Sprintf("supplementary group %d is not a number", group); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("group %d: %v", group, err)
		}
	}
}
