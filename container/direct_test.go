package container

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// newDirect returns a runtime that starts directly.
func newDirect(t *testing.T) *Runtime {
	t.Helper()
	t.Setenv(directVariable, "1")
	return newRuntime(t)
}

// failStarts has a system call fail in the processes that the runtime starts from now on.
func failStarts(t *testing.T, r *Runtime, call failing.Call) {
	t.Helper()
	newStepper(t, r).fail(call)
}

// A step of a direct start that the kernel refuses ends the start, with an error that names it, and leaves no process and no cgroup.
func TestDirectStartStopsWhereTheKernelRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		number uint32
		args   map[int]uint32
		errno  unix.Errno
		want   string
	}{
		"dumpable":                 {unix.SYS_PRCTL, map[int]uint32{0: unix.PR_SET_DUMPABLE}, 0, "keep other processes from reading this one"},
		"keyring":                  {unix.SYS_KEYCTL, nil, 0, "join session keyring"},
		"permissions":              {unix.SYS_KEYCTL, map[int]uint32{0: unix.KEYCTL_SETPERM}, 0, "join session keyring"},
		"F_SETFD":                  {unix.SYS_FCNTL, map[int]uint32{1: unix.F_SETFD}, 0, "take descriptors"},
		"limit":                    {unix.SYS_PRLIMIT64, nil, 0, "set resource limits"},
		"setsid":                   {unix.SYS_SETSID, nil, 0, "make session"},
		"slave mounts":             {unix.SYS_MOUNT, nil, 0, "enter root"},
		"move_mount":               {unix.SYS_MOVE_MOUNT, nil, 0, "enter root"},
		"fchdir":                   {unix.SYS_FCHDIR, nil, 0, "enter root"},
		"pivot_root":               {unix.SYS_PIVOT_ROOT, nil, 0, "enter root"},
		"umount":                   {unix.SYS_UMOUNT2, nil, 0, "enter root"},
		"chdir":                    {unix.SYS_CHDIR, nil, 0, "enter root"},
		"openat2":                  {unix.SYS_OPENAT2, nil, 0, "mount proc at /proc"},
		"mkdirat":                  {unix.SYS_MKDIRAT, nil, 0, "mount /etc at /made/here"},
		"open_tree":                {unix.SYS_OPEN_TREE, nil, 0, "make /proc/1 read-only"},
		"mount_setattr":            {unix.SYS_MOUNT_SETATTR, nil, 0, "make root read-only"},
		"user namespace: setfsgid": {unix.SYS_SETFSGID, nil, 0, "make files as the owner of the root"},
		"user namespace: setfsuid": {unix.SYS_SETFSUID, nil, 0, "make files as the owner of the root"},
		"user namespace: capget":   {unix.SYS_CAPGET, nil, 0, "make files as the owner of the root"},
		"user namespace: capset":   {unix.SYS_CAPSET, nil, 0, "make files as the owner of the root"},
		"user namespace: setns":    {unix.SYS_SETNS, map[int]uint32{1: unix.CLONE_NEWUSER}, 0, "join user namespace"},

		"fstat": {unix.SYS_NEWFSTATAT, nil, 0, "mask /proc/"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDirect(t)
			s := testSpec(busyboxRoot(t), "true")
			s.ReadOnlyRoot, s.Mounts = true, []spec.Mount{{Source: "/etc", Target: "/made/here"}}
			if strings.Contains(name, "user namespace") { // to which the kernel maps no mount, because it is the caller's
				s.Mounts, s.UserNamespace = nil, &spec.UserNamespace{Path: "/proc/self/ns/user", HostID: 1000, Size: 10}
			}
			failStarts(t, r, failing.Call{Number: test.number, Args: test.args, Errno: test.errno})
			c := containerOf(t, r, s)
			_, err := c.Start(spec.Stdio{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, cmp.Or(test.errno, unix.EPERM)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if pids, err := c.PIDs(); len(pids) > 0 || err != nil {
				t.Errorf("processes %d are left, %v", pids, err)
			}
			if err := c.Destroy(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A string of a plan that has a NUL byte would be read as two.
func TestDirectPlanHasNoNULInStrings(t *testing.T) {
	const bad = "/a\x00/b"
	for _, f := range []*forked{
		{keyring: bad}, {label: bad}, {operations: []operation{{source: bad}}}, {operations: []operation{{}, {target: bad}}},
	} {
		if plan, err := f.encode(); err == nil || err.Error() != `"/a\x00/b" contains a NUL byte` {
			t.Errorf("plan %q, error %v", plan, err)
		}
	}
}

// What cannot be mounted is closed: a mount would stay as long as its descriptor.
func TestMountsThatCannotBeMadeAreClosed(t *testing.T) {
	r := newDirect(t)
	c := containerOf(t, r, testSpec(busyboxRoot(t), "true"))
	config, err := c.configure(spec.Stdio{})
	if err == nil {
		err = r.pod.MakeBelow(c.spec.Cgroup, config.Cgroups.Resources)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.newFirstEntrance(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.entrance.close()
	null, root := &devices.Device{Path: os.DevNull}, &configs.Mount{Source: "/", Flags: unix.MS_BIND}
	a := &assembly{container: c}
	before, _ := held(t)
	for name, open := range map[string]func() error{
		"root":   func() error { return a.make(config, l) },
		"device": func() error { return a.bindNode(null) },
		"mask":   func() error { return a.mask(config.MaskPaths) },
		"volume": func() error { _, err := detached(root, nil); return err },
	} {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
			done <- errors.Join(failing.Call{Number: unix.SYS_MOUNT_SETATTR}.Fail(), open())
		}()
		if err := <-done; !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: error %v", name, err)
		}
		a.close()
		*a = assembly{container: c}
		if after := leaked(t, before); len(after) > 0 {
			t.Errorf("%s: open after it: %q", name, after)
		}
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}

// A target is found in the app's root, whatever links the image has, also those of /proc; a link that leads nowhere is an error,
// as is a link of the runtime's own /dev.
func TestTargetsStayInTheRoot(t *testing.T) {
	r, root := newDirect(t), busyboxRoot(t)
	outside := t.TempDir()
	for link, target := range map[string]string{"up": "../../../../../" + outside, "magic": "/proc/1/root", "nowhere": "/no/such"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, outside), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		target string
		want   error
	}{{"/up/made", nil}, {"/magic" + outside + "/made", unix.ELOOP}, {"/nowhere/made", unix.ENOENT}, {"/bin/busybox/made", unix.ENOTDIR}, {"/dev/fd", unix.ELOOP}} {
		s := testSpec(root, "true")
		s.Mounts = []spec.Mount{{Source: "/etc", Target: test.target}}
		c := containerOf(t, r, s)
		p, err := c.Start(spec.Stdio{})
		if !errors.Is(err, test.want) || test.want != nil && !strings.Contains(err.Error(), fmt.Sprintf("start container %q: mount /etc at %s: ", s.Name, test.target)) {
			t.Errorf("%s: error %v, want %v", test.target, err, test.want)
		}
		if err == nil {
			<-p.Done()
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there are %v, %v", left, err)
	}
}

// A process has the soft limit of open files with which the program was started, and not the one that the Go runtime sets.
func TestAProcessHasTheLimitOfOpenFilesFromBefore(t *testing.T) {
	want, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -S -n").Output() // Go restores it as well
	if err != nil {
		t.Fatal(err)
	}
	files, err := strconv.ParseUint(strings.TrimSpace(string(want)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r, root := newRuntime(t), busyboxRoot(t)
	r.init = newInitWithin(t, files)
	if got, _ := output(t, r, testSpec(root, "sh", "-c", "ulimit -S -n")); got != string(want) {
		t.Errorf("an app has %q, want %q", got, want)
	}
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	if got, _ := execOutput(t, c, rootCommand("sh", "-c", "ulimit -S -n")); got != string(want) {
		t.Errorf("a command has %q, want %q", got, want)
	}
}

// More mounts than the soft limit of open files.
func TestAnAppHasManyMounts(t *testing.T) {
	r, s, volume := newRuntime(t), testSpec(busyboxRoot(t), "cat", "/volumes/0/file", "/volumes/1099/file"), t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "file"), []byte("here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		s.Mounts = append(s.Mounts, spec.Mount{Source: volume, Target: fmt.Sprintf("/volumes/%d", i)})
	}
	if got, _ := output(t, r, s); got != "here\nhere\n" {
		t.Errorf("the app says %q", got)
	}
}

// A volume whose file system does not answer fails the start in time, and costs one thread until it answers or goes,
// however often the app is started again.
func TestVolumesThatDoNotAnswerFailTheStart(t *testing.T) {
	r, dir := newDirect(t), t.TempDir()
	s := testSpec(busyboxRoot(t), "true")
	s.Mounts = []spec.Mount{{Source: filepath.Join(dir, "volume"), Target: "/volume"}}
	c := containerOf(t, r, s)
	config, err := c.configure(spec.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.pod.MakeBelow(s.Cgroup, config.Cgroups.Resources); err != nil {
		t.Fatal(err)
	}
	before, _ := held(t)
	release := mountSilent(t, dir)
	l, err := c.newFirstEntrance(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.assemble(config, l, spec.Stdio{}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "volumes do not answer within") {
		t.Errorf("error %v", err)
	}
	l.entrance.close()
	again := containerOf(t, r, s) // as for a restart
	if _, err := again.Start(spec.Stdio{}); err == nil || !strings.Contains(err.Error(), "volumes have not answered since an earlier start") {
		t.Errorf("the next start: error %v", err)
	}
	other := s // as an event handler of the app
	other.Name += "-handler"
	stopping := containerOf(t, r, other)
	if l, err = stopping.newFirstEntrance(nil); err != nil {
		t.Fatal(err)
	}
	_ = stopping.Kill() // it has no cgroup
	if _, err := stopping.assemble(config, l, spec.Stdio{}, surroundings.Patience); !errors.Is(err, errKilled) {
		t.Errorf("a container that was killed: error %v", err)
	}
	l.entrance.close()
	release()
	surroundings.Eventually(t, "all descriptors are closed", func() bool {
		return len(leaked(t, before)) == 0
	})
	if p, err := again.Start(spec.Stdio{}); err == nil {
		<-p.Done()
	} else if strings.Contains(err.Error(), "earlier start") { // without the file system there is no volume
		t.Errorf("a start after the answer: error %v", err)
	}
	if err := again.Destroy(); err != nil {
		t.Error(err)
	}
}

// Where the kernel, or a filter around the stager, lacks a call that a direct start needs, libcontainer starts apps, and the log says why.
func TestLibcontainerStartsWhereDirectStartsCannot(t *testing.T) {
	for _, number := range []uint32{0, unix.SYS_CLONE3, unix.SYS_CLOSE_RANGE, unix.SYS_OPENAT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_PIDFD_OPEN} {
		var log bytes.Buffer
		r := NewRuntime("/none", nil, slog.New(slog.NewTextHandler(&log, nil)))
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
			var err error
			if number != 0 {
				err = failing.Call{Number: number}.Fail()
			}
			r.SelectStarts(spec.DirectStarts)
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "apps are started by libcontainer"); r.direct == (number != 0) || logged == r.direct {
			t.Errorf("call %d fails: direct %t, log %q", number, r.direct, &log)
		}
	}
}

// Where the supervisor may make no device nodes, an app has the supervisor's.
func TestDirectStartBindsDevicesThatItCannotMake(t *testing.T) {
	r := newDirect(t)
	c := containerOf(t, r, testSpec(busyboxRoot(t), "sh", "-c", "echo x >/dev/null && head -c 1 /dev/zero >/dev/null && head -c 1 /dev/urandom | grep -c ''"))
	config, err := c.configure(spec.Stdio{})
	if err == nil {
		err = r.pod.MakeBelow(c.spec.Cgroup, config.Cgroups.Resources)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	l, err := c.newFirstEntrance(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.entrance.close()
	a, done := &assembly{container: c, stdio: spec.Stdio{Stdout: in}}, make(chan error)
	defer a.close()
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		err := failing.Call{Number: unix.SYS_MKNODAT}.Fail()
		done <- errors.Join(err, r.makeMasks(t.TempDir()), a.make(config, l))
	}()
	t.Cleanup(func() { _ = unix.Unmount(r.masks, unix.MNT_DETACH) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	started, err := a.start()
	if err == nil {
		err = c.runDirect(started, l, a)
	}
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	<-started.Done()
	if err != nil || string(text) != "1\n" || started.Status() != 0 {
		t.Errorf("the app writes %q and ends with %#x; %v", text, started.Status(), err)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
}

// A command in an app whose cgroup is frozen does nothing after its fork. It has none of the supervisor's descriptors, so
// that the ends of their pipes come, and another app's command starts.
func TestAFrozenAppDelaysNoOtherApp(t *testing.T) {
	r := newDirect(t)
	one, _ := startSleeper(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
	other, _ := startSleeper(t, r, testSpec(busyboxRoot(t), "sleep", "1000"))
	frozen := one.(*container)
	files, err := frozen.openCgroupFiles()
	defer files.close()
	if err != nil {
		t.Fatal(err)
	}
	if files.unified == nil {
		return // the child enters its cgroups later, by itself
	}
	freeze := filepath.Join(files.unified.Name(), "cgroup.freeze")
	if err := os.WriteFile(freeze, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ended := make(chan error)
	go func() {
		p, err := frozen.Exec(rootCommand("true"), spec.Stdio{})
		if err == nil {
			<-p.Done()
		}
		ended <- err
	}()
	surroundings.Eventually(t, "the app has a second process", func() bool {
		pids, err := os.ReadFile(filepath.Join(files.unified.Name(), "cgroup.procs"))
		return err == nil && bytes.Count(pids, []byte("\n")) == 2
	})
	in.Close()
	if err := out.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a pipe whose writer is closed: %v", err)
	}
	if text, _ := execOutput(t, other, rootCommand("sh", "-c", "echo other")); text != "other\n" {
		t.Errorf("the other app's command writes %q", text)
	}
	if err := errors.Join(os.WriteFile(freeze, []byte("0"), 0), <-ended); err != nil {
		t.Error(err)
	}
}

// A child that cannot be forked into its cgroup is not forked at all: nothing would limit it, nor the end of its pod end it.
func TestNoChildIsForkedWithoutItsCgroup(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	child, err := newDirect(t).fork(&forked{files: []*os.File{null, null, null}}, null)
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
	if err == nil {
		_ = child.Signal(unix.SIGKILL)
	}
}

// All apps of a pod write /dev/shm: a link there does not lead another app's volume to where its programs are.
func TestNoNeighboursLinkIsFollowed(t *testing.T) {
	r := newDirect(t)
	root := busyboxRoot(t)
	if out, status := output(t, r, testSpec(root, "ln", "-s", "/bin", "/dev/shm/cache")); status != 0 {
		t.Fatal(out)
	}
	s := testSpec(root, "true")
	s.Mounts = []spec.Mount{{Source: t.TempDir(), Target: "/dev/shm/cache"}}
	c := containerOf(t, r, s)
	p, err := c.Start(spec.Stdio{})
	if err == nil {
		<-p.Done()
	}
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("%v", err)
	}
	if err := c.Destroy(); err != nil {
		t.Error(err)
	}
	s = testSpec(root, "ls", "/dev/shm/own")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Mounts = []spec.Mount{{Source: dir, Target: "/dev/shm/own"}}
	if out, status := output(t, r, s); status != 0 || out != "file\n" {
		t.Errorf("a volume in /dev/shm: %q, %v", out, status)
	}
}
