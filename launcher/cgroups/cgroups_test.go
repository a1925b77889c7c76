package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/tests/surroundings"
)

func TestHierarchiesAreFoundInTheMounts(t *testing.T) {
	tests := []struct {
		name, line, mount  string // "" for a mount that is not a hierarchy
		v2, cpuset         bool
		groups, dirOfGroup string // a line of /proc/PID/cgroup, the folder of its group
	}{
		{
			name: "v1", line: "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
			mount: "/sys/fs/cgroup/cpu,cpuacct", groups: "4:cpu,cpuacct:/a/b", dirOfGroup: "/sys/fs/cgroup/cpu,cpuacct/a/b",
		},
		{
			name: "cpuset", line: "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,noprefix,clone_children",
			mount: "/sys/fs/cgroup/cpuset", cpuset: true, groups: "5:cpuset:/", dirOfGroup: "/sys/fs/cgroup/cpuset",
		},
		{
			name: "named", line: "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd",
			mount: "/sys/fs/cgroup/systemd", groups: "1:name=systemd:/user:1", dirOfGroup: "/sys/fs/cgroup/systemd/user:1",
		},
		{
			name: "a part of a hierarchy", line: "32 31 0:29 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
			mount: "/sys/fs/cgroup/pids", groups: "7:pids:/box/a", dirOfGroup: "/sys/fs/cgroup/pids/a",
		},
		{
			name: "another part", line: "32 31 0:29 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
			mount: "/sys/fs/cgroup/pids", groups: "7:pids:/else", dirOfGroup: "/sys/fs/cgroup/pids/else",
		},
		{
			name: "another controller", line: "32 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
			mount: "/sys/fs/cgroup/pids", groups: "7:memory:/a",
		},
		{name: "v2 alone", line: "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate", mount: "/sys/fs/cgroup", v2: true, groups: "0::/a", dirOfGroup: "/sys/fs/cgroup/a"},
		{name: "v2 beside v1", line: "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", mount: "/sys/fs/cgroup/unified", v2: true, groups: "0::/a", dirOfGroup: "/sys/fs/cgroup/unified/a"},
		{name: "escaped", line: `41 31 0:38 / /sys/fs/cgroup/a\040b rw - cgroup cgroup rw,name=x`, mount: "/sys/fs/cgroup/a b"},
		{name: "tmpfs", line: "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755"},
		{name: "elsewhere", line: "41 31 0:38 / /mnt/cgroup rw - cgroup2 cgroup2 rw"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(tt.line+"\n"), besideMountRoot)
			if err != nil {
				t.Fatal(err)
			}
			found := hierarchies(mounts)
			if tt.mount == "" {
				if len(found) > 0 {
					t.Errorf("%+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Mount != tt.mount || found[0].V2 != tt.v2 || found[0].cpuset() != tt.cpuset {
				t.Fatalf("%+v, want %s, v2: %v, cpuset: %v", found, tt.mount, tt.v2, tt.cpuset)
			}
			path := filepath.Join(t.TempDir(), "cgroup")
			if err := os.WriteFile(path, []byte(tt.groups+"\n8:other:/other\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.groups == "" {
				return
			}
			groups, err := cgroups.ParseCgroupFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if dir, ok := found[0].dirOf(groups); dir != tt.dirOfGroup || ok != (tt.dirOfGroup != "") {
				t.Errorf("folder %q, %v; want %q", dir, ok, tt.dirOfGroup)
			}
		})
	}
}

func TestMountsThatCannotBeReadAreAnError(t *testing.T) {
	if mounts, err := mountinfo.GetMountsFromReader(strings.NewReader("x\n"), besideMountRoot); err == nil {
		t.Errorf("%v, want an error", mounts)
	}
}

func TestOpenRefusesPathsOutside(t *testing.T) {
	for _, path := range []string{"", "/a", "../a", "a/../../b"} {
		if g, err := Open(path); err == nil {
			t.Errorf("Open(%q) = %v", path, g)
		}
	}
}

// newGroup makes a group in a parent of the test's own.
func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := Open(fmt.Sprintf("kurma-cgroups-test-%d/pod", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, h := range g.Hierarchies {
			if _, err := os.Stat(filepath.Dir(g.Dir(h))); err == nil {
				t.Errorf("%s is left", filepath.Dir(g.Dir(h)))
			}
		}
	})
	if err := g.Make(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestMakeAndRemoveMayBeRepeated(t *testing.T) {
	surroundings.Root(t)
	g := newGroup(t)
	for _, step := range []func() error{g.Make, g.Kill, g.Remove, g.Remove, g.Kill, g.Make} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// The parents of several pods go with the last pod, up to a group that was
// there before.
func TestParentsAreRemovedUpwards(t *testing.T) {
	surroundings.Root(t)
	top := fmt.Sprintf("kurma-cgroups-test-nested-%d", os.Getpid())
	var pods []*Group
	for _, path := range []string{"/given/a/b/one", "/given/a/b/two", "/given/c/three"} {
		g, err := Open(top + path)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, g)
	}
	given := *pods[0]
	given.Path = top + "/given"
	for _, h := range given.Hierarchies {
		dir := given.Dir(h)
		t.Cleanup(func() {
			for _, dir := range []string{dir + "/a/b", dir + "/a", dir + "/c", dir, filepath.Dir(dir)} {
				_ = os.Remove(dir)
			}
		})
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range pods {
		if err := g.Make(); err != nil {
			t.Fatal(err)
		}
	}
	for i, left := range [][]string{{"a/b/two", "c/three"}, {"c/three"}, {""}} {
		if err := pods[i].Remove(); err != nil {
			t.Fatal(err)
		}
		for _, h := range given.Hierarchies {
			for _, path := range []string{"", "a", "a/b/two", "c", "c/three"} {
				want := path == "" || slices.ContainsFunc(left, func(l string) bool { return strings.HasPrefix(l, path) })
				if _, err := os.Stat(filepath.Join(given.Dir(h), path)); (err == nil) != want {
					t.Errorf("after %d pods, %s/%s: %v, want there: %v", i+1, given.Dir(h), path, err, want)
				}
			}
		}
	}
}

// A sandbox keeps its group when its last container ends.
func TestAGroupStaysWhenTheGroupsInItAreRemoved(t *testing.T) {
	surroundings.Root(t)
	g := newGroup(t)
	child, err := Open(g.Path + "/child")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(child.Make(), child.Remove()); err != nil {
		t.Fatal(err)
	}
	for _, h := range g.Hierarchies {
		if !exists(g.Dir(h)) {
			t.Errorf("%s is gone", g.Dir(h))
		}
	}
}

// A launcher was killed after it had made a parent and before it marked it.
func TestAnUnmarkedParentOfAKilledLauncherIsRemoved(t *testing.T) {
	surroundings.Root(t)
	g, err := Open(fmt.Sprintf("kurma-cgroups-test-unmarked-%d/pod", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	missing := g.Missing()
	parents := make([]string, 0, len(g.Hierarchies))
	for _, h := range g.Hierarchies {
		dir := filepath.Dir(g.Dir(h))
		parents = append(parents, dir)
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(missing, parents) {
		t.Errorf("missing are %q, want %q", missing, parents)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range parents {
		if !exists(dir) {
			t.Errorf("%s is gone; an administrator could have made it", dir)
		}
	}
	g.Claim(append(missing, "/sys/fs/cgroup/no/parent"))
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range parents {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestAChildStartsInTheGroup(t *testing.T) {
	surroundings.Root(t)
	g := newGroup(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- forkCat(g, in)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	groups := strings.TrimSpace(string(text))
	if strings.Count(groups, "\n")+1 < len(g.Hierarchies) {
		t.Errorf("the child's cgroups are %q", groups)
	}
	for line := range strings.SplitSeq(groups, "\n") {
		if !strings.HasSuffix(line, ":/"+g.Path) {
			t.Errorf("child's cgroup %s", line)
		}
	}
}

// forkCat has a child in the group write its cgroups, from a thread without the host's cgroups, and returns an error
// if the thread stays in the group.
func forkCat(g *Group, out *os.File) error {
	defer out.Close()
	entrance, err := g.OpenEntrance()
	if err != nil {
		return err
	}
	defer entrance.Close()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", "/sys", "tmpfs", 0, "")); err != nil {
		return err
	}
	child, err := entrance.Fork(func(v2 *os.File) (*os.Process, error) {
		attr := &syscall.SysProcAttr{}
		if v2 != nil {
			attr.UseCgroupFD, attr.CgroupFD = true, int(v2.Fd())
		}
		return os.StartProcess("/bin/cat", []string{"cat", "/proc/self/cgroup"}, &os.ProcAttr{Files: []*os.File{nil, out}, Sys: attr})
	})
	if err != nil {
		return err
	}
	_, err = child.Wait()
	if own, _ := os.ReadFile("/proc/thread-self/cgroup"); strings.Contains(string(own), g.Path) {
		err = errors.Join(err, errors.New("the thread has not left the group"))
	}
	return err
}

// start starts a process that writes a line when it is up, in a group below g.
func start(t *testing.T, g *Group, script string) *exec.Cmd {
	t.Helper()
	below := *g
	below.Path += "/below"
	if err := below.Make(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, h := range g.Hierarchies {
		if err := os.WriteFile(filepath.Join(below.Dir(h), "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = in.Write([]byte("go\n"))
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

func TestKillEndsTheWholeTree(t *testing.T) {
	surroundings.Root(t)
	g := newGroup(t)
	cmd := start(t, g, `read x; trap "" TERM INT; sleep 1000 & setsid sleep 1000 & echo up; wait`)
	pids, err := g.PIDs()
	if err != nil || len(pids) < 3 || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("PIDs = %v, %v", pids, err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// A thread that could not leave the group does not have its own process killed.
func TestKillSparesTheCallersProcess(t *testing.T) {
	surroundings.Root(t)
	g := newGroup(t)
	if err := g.Make(); err != nil {
		t.Fatal(err)
	}
	entered, leave, ended := make(chan error), make(chan struct{}), make(chan struct{})
	thread.Go(func() { // the thread, which is in the group, ends with the function
		defer close(ended)
		entrance, err := g.OpenEntrance()
		if err == nil {
			err = move(entrance.group)
		}
		entrance.Close()
		entered <- err
		<-leave
	})
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	close(leave)
	<-ended
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func TestKillEndsWhatIsFrozen(t *testing.T) {
	surroundings.Root(t)
	for name, below := range map[string]string{"itself": "", "a group below": "/below"} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			cmd := start(t, g, `read x; echo up; sleep 1000`)
			frozen := *g
			frozen.Path += below
			frozen.freeze()
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { _ = cmd.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(patience):
				frozen.thaw()
				t.Fatal("a frozen process survived")
			}
		})
	}
}
