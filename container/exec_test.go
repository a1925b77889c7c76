package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/failing"
	"kurma.io/stager/tests/surroundings"
)

// leaked returns what the test's process has open and had not before. What another test has left may be closed meanwhile.
func leaked(t *testing.T, before []string) []string {
	t.Helper()
	after, _ := held(t)
	return slices.DeleteFunc(after, func(file string) bool { return slices.Contains(before, file) })
}

// held is what the test's process has open, and its children and theirs, which are init's, zombies included.
func held(t *testing.T) (files, children []string) {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // ReadDir's own is gone
			files = append(files, e.Name()+" "+link)
		}
	}
	children = childrenOf(t, "self")
	for _, child := range children {
		children = append(children, childrenOf(t, child)...)
	}
	slices.Sort(children)
	return files, children
}

func childrenOf(t *testing.T, pid string) (children []string) {
	t.Helper()
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		children = append(children, strings.Fields(string(text))...)
	}
	return children
}

// startUnwatched starts a container that sleeps, and returns when what the test's process holds of it stays the same.
// Nobody watches its memory: the watch opens a file a second after the start. The thread of libcontainer that opens the
// sources of mounts closes the mount namespace some moments after the start.
func startUnwatched(t *testing.T) *container {
	t.Helper()
	sleeper, _ := startSleeper(t, newRuntime(t), testSpec(busyboxRoot(t), "sleep", "1000"))
	c := sleeper.(*container)
	c.oom.Close()
	mounts, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", c.handles.mounts.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	alone := func() bool {
		files, _ := held(t)
		return !slices.ContainsFunc(files, func(f string) bool {
			number, link, _ := strings.Cut(f, " ")
			return link == mounts && number != strconv.Itoa(int(c.handles.mounts.Fd()))
		})
	}
	surroundings.Eventually(t, "libcontainer closes the mount namespace", alone)
	return c
}

// A start of a command that fails leaves no descriptor and no process: where there is no program, and wherever the
// supervisor's descriptors run out.
func TestACommandThatFailsLeavesNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes lost files
	c := startUnwatched(t)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(most uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(before.Cur)
	for _, terminal := range []bool{false, true} {
		execOutput(t, c, rootCommand("true")) // libraries keep what they open the first time
		files, children := held(t)
		unchanged := func(what string) {
			t.Helper()
			var nowFiles, nowChildren []string
			if !surroundings.Eventually(t, "nothing is left", func() bool { // a kill may be returning
				nowFiles, nowChildren = held(t)
				return slices.Equal(nowFiles, files) && slices.Equal(nowChildren, children)
			}) {
				t.Fatalf("terminal %t, %s: left are %q and %q, before %q and %q", terminal, what, nowFiles, nowChildren, files, children)
			}
		}
		if _, err := c.Exec(rootCommand("nosuchprogram"), spec.Stdio{Terminal: terminal}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("terminal %t: error %v", terminal, err)
		}
		unchanged("no program")
		failed := 0
		for most := uint64(3); ; most++ {
			console := make(chan *os.File, 1)
			limit(most)
			p, err := c.Exec(rootCommand("sleep", "1000"), spec.Stdio{Terminal: terminal, Console: console})
			limit(before.Cur)
			if err == nil {
				err = p.Signal(unix.SIGKILL)
				<-p.Done()
				if terminal {
					(<-console).Close()
				}
			}
			unchanged(fmt.Sprintf("at most %d descriptors: %v", most, err))
			if err == nil {
				break
			}
			failed++
		}
		if failed < 10 {
			t.Errorf("terminal %t: only %d starts have failed", terminal, failed)
		}
	}
}

// A command that would lack the app's keyring, label, cgroup or devpts, or has no process, does not start, and leaves
// no descriptor.
func TestACommandWithoutItsSurroundingsFails(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes lost files
	fails := func(number uint32) func(*container) {
		return func(c *container) { failStarts(t, c.runtime, failing.Call{Number: number}) }
	}
	for want, change := range map[string]func(c *container){
		"join session keyring: ": fails(unix.SYS_KEYCTL),
		"exec true: ":            fails(unix.SYS_EXECVE),
		"set SELinux label: ":    func(c *container) { c.spec.SELinuxLabel = "no such label" }, // not the machine's
		"no manager": func(c *container) {
			c.cgroups = func() (cgroups.Manager, error) { return nil, errors.New("no manager") }
		},
		"open container's cgroup: ": func(c *container) {
			c.cgroups = func() (cgroups.Manager, error) {
				return manager.New(&cgroups.Cgroup{Path: "/stager-test-none", Resources: &cgroups.Resources{SkipDevices: true}})
			}
		},
		"make terminal: /dev/pts is not a devpts": func(c *container) {
			inMounts(t, c, func() error {
				return errors.Join(unix.Unmount("/dev/pts", unix.MNT_DETACH), os.WriteFile("/dev/pts/ptmx", nil, 0o666))
			})
		},
		"make terminal: ioctl TIOCSPTLCK: ": func(c *container) { // the other side of a terminal
			inMounts(t, c, func() error {
				master, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0) // makes 0
				return errors.Join(err, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0), unix.Mount("/dev/pts/0", "/dev/pts/ptmx", "", unix.MS_BIND, ""))
			})
		},
	} {
		c := startUnwatched(t)
		whole := c.cgroups
		change(c)
		before, _ := held(t)
		p, err := c.Exec(rootCommand("true"), spec.Stdio{Terminal: strings.HasPrefix(want, "make terminal"), Console: make(chan *os.File, 1)})
		c.cgroups = whole
		if err == nil {
			<-p.Done()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if after := leaked(t, before); len(after) > 0 {
			t.Errorf("%v leaves %q", err, after)
		}
	}
}

// inMounts changes mounts of a container, as an app with CAP_SYS_ADMIN can.
func inMounts(t *testing.T, c *container, change func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(c.handles.mounts.Fd()), unix.CLONE_NEWNS))
		if err == nil {
			err = change()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Commands that wait in their start hold no thread each, and go on when an app has stopped them.
func TestCommandsThatAreStoppedInTheirStartGoOn(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	r.execLimit = surroundings.Patience
	c, _ := startSleeper(t, r, testSpec(root, "sleep", "1000"))
	release := delayExec(t, filepath.Join(root, "bin/busybox-late"))
	const commands = 30
	ended := make(chan error, commands)
	for range commands {
		go func() {
			p, err := c.Exec(rootCommand("/bin/busybox-late", "true"), spec.Stdio{})
			if err == nil {
				<-p.Done()
			}
			ended <- err
		}()
	}
	shim, err := os.ReadFile("/proc/self/cmdline") // init's, which is a fork
	if err != nil {
		t.Fatal(err)
	}
	// A shim waits if it sleeps and no signal waits for it.
	wait := func() bool {
		_, children := held(t)
		waiting := 0
		for _, pid := range children {
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline") // it may be gone
			status, _ := os.ReadFile("/proc/" + pid + "/status")
			if bytes.Equal(name, shim) && strings.Contains(string(status), "\nState:\tS") && strings.Contains(string(status), "\nShdPnd:\t0000000000000000\n") {
				waiting++
			}
		}
		return waiting == commands
	}
	surroundings.Eventually(t, "all commands wait", wait)
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if title, _, _ := strings.Cut(stack, "\n"); strings.Contains(stack, "(*container).exec(") && strings.Contains(title, "locked to thread") {
			t.Errorf("a command that waits holds a thread:\n%s", stack)
		}
	}
	if text, status := output(t, r, testSpec(root, "kill", "-STOP", "-1")); status != 0 { // all but itself and PID 1
		t.Errorf("kill ends with %#x: %s", status, text)
	}
	surroundings.Eventually(t, "the commands go on and wait again", wait)
	release()
	for range commands {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// delayExec makes a busybox that no process can execute until release is called, for 45 seconds at most
// (fcntl(2), F_SETLEASE).
func delayExec(t *testing.T, path string) (release func()) {
	t.Helper()
	text, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A close for writing ends the lease before the writing: an exec in between fails with ETXTBSY.
	program, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(program.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	return func() { program.Close() }
}
