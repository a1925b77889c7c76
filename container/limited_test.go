package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"
)

// mountSilent mounts a FUSE file system whose server never answers (fuse(4)), until release is called: whoever opens
// anything in it waits.
func mountSilent(t *testing.T, dir string) (release func()) {
	t.Helper()
	node := filepath.Join(t.TempDir(), "fuse")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229))); err != nil {
		t.Fatal(err)
	}
	server, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)
	if err := unix.Mount("silent", dir, "fuse", 0, options); err != nil {
		t.Fatal(err)
	}
	return func() { _ = errors.Join(unix.Close(server), unix.Unmount(dir, unix.MNT_DETACH)) }
}

// specWithEtc returns the container of an app that has its /etc in a volume, and that folder: what is mounted on it
// later is also in the app.
func specWithEtc(t *testing.T) (s spec.Spec, etc string) {
	t.Helper()
	root, volume := busyboxRoot(t), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(volume, "etc"), 0o755), os.Mkdir(filepath.Join(volume, "bin"), 0o755),
		os.RemoveAll(filepath.Join(root, "etc")), os.Symlink("/volume/etc", filepath.Join(root, "etc")),
		unix.Mount(volume, volume, "", unix.MS_BIND, ""), unix.Mount("", volume, "", unix.MS_SHARED, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	s = testSpec(root, "sleep", "1000")
	s.Mounts = []spec.Mount{{Source: volume, Target: "/volume", Recursive: true}}
	return s, filepath.Join(volume, "etc")
}

// Files of an app that do not answer cost the start that looks at them, in time, and nothing else.
func TestFilesThatDoNotAnswerCostOneStart(t *testing.T) {
	r := newRuntime(t)
	r.execLimit = time.Second
	s, etc := specWithEtc(t)
	hostile, _ := startSleeper(t, r, s)
	other, _ := startSleeper(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
	release := mountSilent(t, etc)
	named := rootCommand("true")
	named.User = "bob"
	ended := make(chan error)
	const starts = 2*maxLooks + 1
	for range starts {
		go func() {
			_, err := hostile.Exec(named, spec.Stdio{})
			ended <- err
		}()
	}
	for range starts {
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "do not answer within") {
				t.Errorf("error %v", err)
			}
		case <-time.After(surroundings.Patience):
			t.Fatal("a start waits for the files for ever")
		}
	}
	r.execLimit = surroundings.Patience // the starts that it is short for are over
	if text, _ := execOutput(t, other, rootCommand("sh", "-c", "echo other")); text != "other\n" {
		t.Errorf("another container's command writes %q", text)
	}
	release()
	c, ok := hostile.(*container)
	if !ok {
		t.Fatal("no container of this package")
	}
	surroundings.Eventually(t, "the looks end with the file system", func() bool { return len(c.looks) == 0 })
	if text, _ := execOutput(t, hostile, rootCommand("sh", "-c", "echo again")); text != "again\n" {
		t.Errorf("the container's command writes %q", text)
	}
	answer := make(chan struct{})
	defer close(answer)
	if err := c.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := look(c, func(*os.File) bool { <-answer; return true }, nil); !errors.Is(err, errKilled) {
		t.Errorf("a look at the files of an app that was killed: %v", err)
	}
}

// Files that do not answer keep maxLooks threads of an app at most, however often the app starts.
func TestFilesThatDoNotAnswerCostABoundedNumberOfThreads(t *testing.T) {
	waiting := func() int {
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("identity.Resolve("))
	}
	for name, r := range map[string]*Runtime{"libcontainer": newRuntime(t), "direct": newDirect(t)} {
		r.execLimit = 50 * time.Millisecond
		s, etc := specWithEtc(t)
		s.Process.User = "bob"
		release := mountSilent(t, etc)
		for range 3 * maxLooks {
			c := containerOf(t, r, s)
			_, err := c.Start(spec.Stdio{})
			if err == nil || !strings.Contains(err.Error(), "do not answer within") {
				t.Errorf("%s: error %v", name, err)
			}
			if err := c.Destroy(); err != nil {
				t.Error(err)
			}
		}
		if n := waiting(); n != maxLooks {
			t.Errorf("%s: %d looks wait", name, n)
		}
		release()
		surroundings.Eventually(t, "the looks end", func() bool { return waiting() == 0 })
	}
}

// A command in a frozen app ends by its limit in time, also where the kernel keeps what is killed (cgroups of version 1).
func TestACommandInAFrozenAppEndsByItsLimit(t *testing.T) {
	r := newRuntime(t)
	r.execLimit = time.Second
	c, _ := startSleeper(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
	m, err := c.(*container).cgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, freezer := range freezers() {
		folder := m.Path(freezer.hierarchy)
		if folder == "" {
			continue
		}
		freeze := func(state string) {
			if err := os.WriteFile(filepath.Join(folder, freezer.file), []byte(state), 0); err != nil {
				t.Error(err)
			}
		}
		freeze(freezer.frozen)
		if freezer.hierarchy == "" {
			surroundings.Eventually(t, "the cgroup is frozen", func() bool {
				events, err := os.ReadFile(filepath.Join(folder, "cgroup.events"))
				return err == nil && strings.Contains(string(events), "frozen 1")
			})
		}
		_, err := c.Exec(rootCommand("true"), spec.Stdio{})
		freeze(freezer.thawed)
		if err == nil || !strings.Contains(err.Error(), "not started within 1s") {
			t.Errorf("frozen by %s: error %v", freezer.file, err)
		}
	}
}

// freezer is the file by which a hierarchy freezes a cgroup.
type freezer struct{ hierarchy, file, frozen, thawed string }

// freezers are the machine's.
func freezers() []freezer {
	unified := freezer{"", "cgroup.freeze", "1", "0"}
	if cgroups.IsCgroup2UnifiedMode() { // whose one folder is that of every controller
		return []freezer{unified}
	}
	return []freezer{{"freezer", "freezer.state", "FROZEN", "THAWED"}, unified}
}

// An app whose cgroup is frozen before its process becomes the app ends by its limit in time, which the error names,
// also where the kernel keeps what is killed.
func TestAStartInAFrozenCgroupEndsByItsLimit(t *testing.T) {
	for _, freezer := range freezers() {
		r := newDirect(t)
		r.startLimit = time.Second
		c := containerOf(t, r, testSpec(busyboxRoot(t), "true"))
		m, err := c.cgroups()
		if err != nil {
			t.Fatal(err)
		}
		folder := m.Path(freezer.hierarchy)
		if folder == "" {
			continue
		}
		file := filepath.Join(folder, freezer.file)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(file, []byte(freezer.frozen), 0)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.Start(spec.Stdio{})
			ended <- err
		}()
		select {
		case err = <-ended:
		case <-time.After(surroundings.Patience):
		}
		if err == nil || !strings.Contains(err.Error(), "not started within 1s") {
			t.Errorf("frozen by %s: error %v", freezer.file, err)
		}
		if err := os.WriteFile(file, []byte(freezer.thawed), 0); err != nil {
			t.Error(err)
		}
		surroundings.Eventually(t, "no process is left", func() bool {
			_, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
			pids, err := c.PIDs()
			return err == nil && len(pids) == 0
		})
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
