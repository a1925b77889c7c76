package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// The shim refuses whatever is not a whole plan, and reads nothing beyond its end.
func TestShimRefusesBrokenPlans(t *testing.T) {
	whole, err := (&shimPlan{dir: "/", candidates: []string{"/no/such"}, args: []string{"x"}, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	put := func(offset int, value uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.NativeEndian.PutUint32(b[offset:], value); return b }
	}
	const header = 120 // shim_plan; checked below
	if len(whole) != header+len("/\x00\x00/no/such\x00x\x00") {
		t.Fatalf("the plan is %d bytes long", len(whole))
	}
	for name, test := range map[string]struct {
		change func([]byte) []byte
		want   uint32
	}{
		"whole":             {func(b []byte) []byte { return b }, uint32(unix.ENOENT)},
		"empty":             {func([]byte) []byte { return nil }, uint32(unix.EINVAL)},
		"half a header":     {func(b []byte) []byte { return b[:40] }, uint32(unix.EINVAL)},
		"no magic":          {put(0, 1), uint32(unix.EINVAL)},
		"another size":      {func(b []byte) []byte { return append(b, 0) }, uint32(unix.EINVAL)},
		"too many groups":   {put(32, 1<<31), uint32(unix.EINVAL)},
		"too many filters":  {put(36, 1<<31), uint32(unix.EINVAL)},
		"too many programs": {put(40, 5), uint32(unix.EINVAL)},
		"too many words":    {put(44, 3), uint32(unix.EINVAL)},
		"too long an env":   {put(48, 1), uint32(unix.EINVAL)},
		"no room for words": {put(44, 1<<32-1), uint32(unix.EINVAL)}, // their vector is not allocated
		"no end of string":  {func(b []byte) []byte { b[len(b)-1] = 'x'; return b }, uint32(unix.EINVAL)},
	} {
		t.Run(name, func(t *testing.T) {
			report, code := runShim(t, "3", test.change(append([]byte(nil), whole...)))
			if len(report) != 8 || binary.NativeEndian.Uint32(report[4:]) != test.want {
				t.Errorf("the shim reports %v and ends with %d, want error %d", report, code, test.want)
			}
		})
	}
	for _, variable := range []string{"", "x", "3x", "2", "-1", "99999999999999999999"} {
		if report, code := runShim(t, variable, whole); len(report) != 0 || code != 126 {
			t.Errorf("%q: the shim reports %v and ends with %d", variable, report, code)
		}
	}
}

// The shim reports the first step that fails, and does not execute the program.
func TestShimReportsWhatFails(t *testing.T) {
	for want, change := range map[string]func(*shimPlan){
		"set resource limits":    func(p *shimPlan) { p.memlock = unix.Rlimit{Cur: 2, Max: 1} },
		"set AppArmor profile":   func(p *shimPlan) { p.profile = "no such profile" },
		"set oom_score_adj":      func(p *shimPlan) { p.flags, p.oomScore = shimJoin, 5000 },
		"enter cgroup":           func(p *shimPlan) { p.flags, p.ncgroups = shimJoin, 1 }, // neither is open
		"join mount namespace":   func(p *shimPlan) { p.flags, p.nbacking = shimJoin, 1 }, // nothing is open there
		"join user namespace":    func(p *shimPlan) { p.flags = shimJoinUsers },           // it is another kind of namespace
		"enter cgroup namespace": func(p *shimPlan) { p.flags = shimJoin | shimJoinCgroups },
		"attach cgroups to /sys/fs/cgroup, which must be a folder and no link": func(p *shimPlan) { p.nbacking, p.targets = 1, []string{"/"} }, // nothing is open there
		"set groups":          func(p *shimPlan) { p.groups = make([]uint32, 1<<16+1) },
		"load seccomp filter": func(p *shimPlan) { p.filter = &filter{program: make([]byte, unix.SizeofSockFilter)} },
	} {
		plan := &shimPlan{dir: "/", candidates: []string{"/bin/true"}, args: []string{"true"}, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}}
		change(plan)
		text, err := plan.encode()
		if err != nil {
			t.Fatal(err)
		}
		report, code := runShim(t, "3", text)
		if len(report) != 8 || shimStep(binary.NativeEndian.Uint32(report)) != want || code == 0 {
			t.Errorf("%s: the shim reports %v and ends with %d", want, report, code)
		}
	}
}

// The shim executes the first candidate that is a file that its user can execute. Without one, it reports
// the error that says most.
func TestShimFindsItsProgram(t *testing.T) {
	folder, locked := t.TempDir(), t.TempDir() // whose parents are root's alone
	text := filepath.Join(folder, "text")
	if err := errors.Join(os.WriteFile(text, nil, 0o644), os.Chmod(locked, 0o700), os.Symlink("/bin/true", filepath.Join(locked, "true"))); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		candidates []string
		uid        uint32
		want       unix.Errno // 0 for success
		code       int
	}{
		"a folder is not a program":           {[]string{folder, "/bin/true"}, 0, 0, 0},
		"a text is not a program":             {[]string{text, "/bin/true"}, 0, 0, 0},
		"only a folder":                       {[]string{folder}, 0, unix.EACCES, 126},
		"nothing after a text":                {[]string{text, "/no/such"}, 0, unix.EACCES, 126},
		"nothing":                             {[]string{"/no/such", "/bin/true/x"}, 0, unix.ENOENT, 127},
		"a folder that the user cannot enter": {[]string{filepath.Join(locked, "true")}, 65534, unix.EACCES, 126},
	} {
		plan := &shimPlan{
			dir: "/", candidates: test.candidates, args: []string{"true"}, uid: test.uid, gid: test.uid,
			bounding: 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16},
		}
		text, err := plan.encode()
		if err != nil {
			t.Fatal(err)
		}
		report, code := runShim(t, "3", text)
		reported := unix.Errno(0)
		if len(report) == 8 {
			reported = unix.Errno(binary.NativeEndian.Uint32(report[4:]))
		}
		if reported != test.want || code != test.code {
			t.Errorf("%s: the shim reports %v and ends with %d, want %v and %d", name, reported, code, test.want, test.code)
		}
	}
}

// runShim executes the shim outside a container. Its only namespace to join is the mount namespace, its own.
func runShim(t *testing.T, variable string, plan []byte) (report []byte, code int) {
	t.Helper()
	pipes, err := newShimPipes()
	if err != nil {
		t.Fatal(err)
	}
	defer pipes.close()
	if _, err := pipes.plan.WriteAt(plan, 0); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{names.ShimVariable + "=" + variable}
	cmd.ExtraFiles = []*os.File{shimProgram: mounts, shimPlanFile: pipes.plan, shimReport: pipes.reportChild, shimUsers: mounts, shimUsers + 1: mounts}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	_ = cmd.Run() // the state says how it ended
	if output.Len() > 0 {
		t.Errorf("%q: the shim writes %q to its stdio", variable, output.String())
	}
	pipes.reportChild.Close()
	if report, err = io.ReadAll(pipes.report); err != nil {
		t.Fatal(err)
	}
	return report, cmd.ProcessState.ExitCode()
}

// allCapabilities are those of the test, as names, but for CAP_PERFMON.
func allCapabilities(t *testing.T) []string {
	t.Helper()
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range capability.ListKnown() {
		if own.Get(capability.BOUNDING, c) && c != capability.CAP_PERFMON { // with which /proc hides others
			all = append(all, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return all
}

// A working directory that leads out of the root is refused, with every capability.
func TestAWorkingDirectoryOutsideTheRootIsRefused(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	s := testSpec(root, "sleep", "1000")
	s.Process.Capabilities = allCapabilities(t)
	c, _ := startSleeper(t, r, s)
	_, outside := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	cmd := rootCommand("true")
	cmd.Dir = fmt.Sprintf("/proc/%d/root", inPod(t, outside))
	if p, err := c.Exec(cmd, spec.Stdio{}); err == nil || !strings.Contains(err.Error(), unix.EXDEV.Error()) {
		if err == nil {
			<-p.Done()
		}
		t.Errorf("error %v", err)
	}
}

// Neither the supervisor's umask nor the daemon's reaches the app or a command.
func TestNoUmaskIsInherited(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	command, _ := execOutput(t, c, rootCommand("sh", "-c", "umask"))
	app, _ := output(t, r, testSpec(root, "sh", "-c", "umask"))
	if app != "0022\n" || command != "0022\n" {
		t.Errorf("the app has umask %q, a command %q", app, command)
	}
}

// terminalOutput returns what a command writes to a terminal of the size of stdio.
func terminalOutput(t *testing.T, c spec.Container, command spec.Command, stdio spec.Stdio) string {
	t.Helper()
	console := make(chan *os.File, 1)
	stdio.Terminal, stdio.Console = true, console
	p, err := c.Exec(command, stdio)
	if err != nil {
		t.Fatal(err)
	}
	master := <-console
	defer master.Close()
	text, _ := io.ReadAll(master) // EIO is the end of a terminal
	<-p.Done()
	return string(text)
}

// The suite of runtimes lets the size come later.
func TestACommandsTerminalHasItsSizeAtTheStart(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	text := terminalOutput(t, c, rootCommand("stty", "size"), spec.Stdio{Width: 123, Height: 45})
	if text != "45 123\r\n" {
		t.Errorf("stty prints %q", text)
	}
}

// A terminal and the pipes of an app or a command belong to the user of the process; files stay their owner's.
func TestTheUserOwnsTheTerminalAndThePipes(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	owner := rootCommand("stat", "-L", "-c", "%u", "/proc/self/fd/0")
	owner.User, owner.Group = "1000", "1000"
	if text := terminalOutput(t, c, owner, spec.Stdio{}); text != "1000\r\n" {
		t.Errorf("a command's terminal is %q's", text)
	}

	owner.Args[4] = "/proc/self/fd/1"
	if text, _ := execOutput(t, c, owner); text != "1000\n" {
		t.Errorf("a command's pipe is %q's", text)
	}
	s := testSpec(root, owner.Args...)
	s.Process.User, s.Process.Group = "1000", "1000"
	if text, _ := output(t, r, s); text != "1000\n" {
		t.Errorf("the app's pipe is %q's", text)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	again := containerOf(t, r, s)
	started, err := again.Start(spec.Stdio{Stdout: file})
	if err != nil {
		t.Fatal(err)
	}
	<-started.Done()
	if err := again.Destroy(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file.Name()); err != nil || string(text) != "0\n" {
		t.Errorf("%v; the app's file is %q's", err, text)
	}
}

// What is mounted into a volume later comes into the container, and nothing goes out.
func TestVolumesTakeLaterMounts(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	tests := map[string]struct {
		recursive, readOnly bool
		comesIn             string
	}{
		"flat": {comesIn: "1\n"}, "recursive": {recursive: true, comesIn: "1\n"},
		"read-only": {readOnly: true, comesIn: "0\n"}, "recursive and read-only": {recursive: true, readOnly: true, comesIn: "0\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			for _, dir := range []string{"in", "out"} {
				if err := os.Mkdir(filepath.Join(volume, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Mount(volume, volume, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
			if err := unix.Mount("", volume, "", unix.MS_SHARED, ""); err != nil {
				t.Fatal(err)
			}
			s := testSpec(root, "sleep", "1000")
			s.Process.Capabilities = append(s.Process.Capabilities, "CAP_SYS_ADMIN")
			s.Mounts = []spec.Mount{{Source: volume, Target: "/volume", Recursive: test.recursive, ReadOnly: test.readOnly}}
			c, _ := startSleeper(t, r, s)
			if err := unix.Mount("later", filepath.Join(volume, "in"), "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			text, _ := execOutput(t, c, rootCommand("/bin/busybox", "sh", "-c", "/bin/busybox mount -t tmpfs inside /volume/out && grep -c '^later /volume/in' /proc/mounts"))
			if text != test.comesIn {
				t.Errorf("the later mount is there %q times, want %q", text, test.comesIn)
			}
			mounts, err := os.ReadFile("/proc/thread-self/mounts") // the first thread may be in the container
			if err != nil || strings.Contains(string(mounts), "inside "+volume) {
				t.Errorf("%v; the container's mount goes out", err)
			}
		})
	}
}

// A volume in the mount that also has the root takes later mounts as one that is a mount of its own.
func TestAVolumeBesideTheRootTakesLaterMounts(t *testing.T) {
	root := busyboxRoot(t)
	base := filepath.Dir(root)
	later := filepath.Join(base, "volume", "in")
	err := errors.Join(os.MkdirAll(later, 0o755), unix.Mount(base, base, "", unix.MS_BIND, ""), unix.Mount("", base, "", unix.MS_SHARED, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
	s := testSpec(root, "sleep", "1000")
	s.Mounts = []spec.Mount{{Source: filepath.Dir(later), Target: "/volume"}}
	c, _ := startSleeper(t, newRuntime(t), s)
	if err := unix.Mount("later", later, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if text, _ := execOutput(t, c, rootCommand("grep", "-c", "^later /volume/in", "/proc/mounts")); text != "1\n" {
		t.Errorf("the later mount is there %q times", text)
	}
}

// A container's terminals are limited, so that one app leaves some to the others.
func TestTerminalsAreLimited(t *testing.T) {
	r := newRuntime(t)
	text, _ := output(t, r, testSpec(busyboxRoot(t), "grep", " /dev/pts ", "/proc/self/mounts"))
	if !strings.Contains(text, "max=1024") {
		t.Errorf("/dev/pts is mounted as %q", text)
	}
}
