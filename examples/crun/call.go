package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime" // the example has a type of that name
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
	"kurma.io/stager/spec"
)

// execLimit bounds the time from crun's end to the execution of the program.
const execLimit = 10 * time.Second

// crun is the program, from Debian's package: in the stager's image, or on the machine for tests.
const crun = "/usr/bin/crun"

// enterVariable has an oom_score_adj and the folders of the cgroups that crun is to be started
// in, one to a line, see enterCgroup.
const enterVariable = "_STAGER_CRUN_CGROUPS"

// enterCgroup executes crun in the cgroups of enterVariable, and does not return, if
// the program was started for that. Otherwise it returns. main calls it first.
//
//	supervisor ─► this program, in its own mount namespace: joins the cgroups ─► crun ─► the container's process
//
// So the container's process is in its cgroup from the start, and so is all that crun does.
func enterCgroup() {
	score, folders, ok := strings.Cut(os.Getenv(enterVariable), "\n")
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, executeCrun(score, strings.Split(folders, "\n")))
	os.Exit(1)
}

func executeCrun(score string, cgroups []string) error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0); err != nil {
		return fmt.Errorf("set oom_score_adj, which crun exec does not: %w", err)
	}
	for _, folder := range cgroups {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter container's cgroup: %w", err)
		}
	}
	// crun must not see that the machine has cgroups of both versions: it refuses such a
	// machine, also when it is not to touch cgroups.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate mounts of crun: %w", err)
	}
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("hide cgroups from crun: %w", err)
	}
	acceptSignals()
	return os.NewSyscallError("execve", unix.Exec(crun, os.Args, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}))
}

// acceptSignals gives all signals their default actions: those that the supervisor ignores are ignored still. Package
// signal leaves signal 32, which posix_spawn(3) of glibc has its children ignore, and so make(1).
func acceptSignals() {
	const last, maskSize = 64, 8
	var action [5]uintptr          // SIG_DFL, as the kernel has it (rt_sigaction(2))
	for s := range uintptr(last) { // which fails for SIGKILL and SIGSTOP alone
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s+1, uintptr(unsafe.Pointer(&action)), 0, maskSize, 0, 0)
	}
}

// call calls crun to start a process, and returns the process once it has executed program. files are the process's
// from 3 on.
func (c *container) call(stdio spec.Stdio, files []*os.File, program string, args ...string) (spec.Running, error) {
	p, err := c.runtime.family.await(func() (*child.Process, error) { return c.start(stdio, files, program, args...) })
	if err != nil {
		return nil, err // and not a nil *child.Process
	}
	return p, nil
}

func (c *container) start(stdio spec.Stdio, files []*os.File, program string, args ...string) (_ *child.Process, err error) {
	name := strconv.FormatInt(c.calls.Add(1), 10)
	log, number := filepath.Join(c.bundle, "log-"+name), filepath.Join(c.bundle, "pid-"+name)
	defer func() { _, _ = os.Remove(log), os.Remove(number) }() // crun may have written neither
	all := append([]string{"crun", "--root", c.runtime.state, "--cgroup-manager=disabled", "--log", log, "--log-format=json"}, args...)
	all = append(all, "--pid-file", number, "--preserve-fds", strconv.Itoa(len(files)))
	var console *net.UnixListener
	if stdio.Terminal {
		if console, err = c.listen("console-" + name); err != nil {
			return nil, err
		}
		defer console.Close()
		all = append(all, "--console-socket", "console-"+name)
	}
	err = c.execute(stdio, files, append(all, c.spec.Name))
	text, unread := os.ReadFile(number)
	pid, noNumber := strconv.Atoi(string(text))
	if err == nil {
		err = cmp.Or(unread, noNumber)
	}
	if err == nil {
		err = cmp.Or(awaitParent(pid), awaitExec(pid, program))
	}
	if reason := failure(log, program); reason != nil {
		err = reason // crun's exit status says less
	}
	if err == nil && console != nil {
		err = receive(console, stdio.Console)
	}
	if err == nil {
		return child.Follow(pid, nil)
	}
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil) // it has become a child of this process
	}
	return nil, err
}

// execute runs crun to its end, in the container's cgroups.
func (c *container) execute(stdio spec.Stdio, files []*os.File, args []string) error {
	entered := []string{strconv.Itoa(c.spec.OOMScoreAdj)}
	for _, folder := range c.cgroups.GetPaths() {
		entered = append(entered, folder)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Dir, cmd.ExtraFiles = args, c.bundle, files
	cmd.Env = []string{enterVariable + "=" + strings.Join(entered, "\n"), "GOMAXPROCS=1"}
	// crun ends with this program: the kernel sends the signal at the end of the thread (PR_SET_PDEATHSIG(2const)).
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if !stdio.Terminal {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = cmp.Or(stdio.Stdin, null), cmp.Or(stdio.Stdout, null), cmp.Or(stdio.Stderr, null)
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("crun: %w", err)
	}
	return nil
}

// awaitParent returns when a process that crun has started is this program's child: crun has ended, and so does the
// process between both.
func awaitParent(pid int) error {
	for deadline := time.Now().Add(execLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); !errors.Is(err, unix.ECHILD) {
			return os.NewSyscallError("waitid", err)
		}
	}
	return errors.New("crun does not leave its child")
}

// awaitExec returns when a process that crun has started has executed program. crun reports an
// error of that to the process's stderr alone, so the errno is a guess.
func awaitExec(pid int, program string) error {
	own, err := os.Stat(crun)
	if err != nil {
		return err
	}
	folder := fmt.Sprintf("/proc/%d/", pid)
	for deadline := time.Now().Add(execLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		now, err := os.Stat(folder + "exe")
		if err == nil && os.SameFile(own, now) {
			continue // it is crun
		}
		if err == nil {
			return nil
		}
		// It has ended: the number stays its own until it is waited for, and so does its name.
		name, err := os.ReadFile(folder + "comm")
		if err != nil || strings.HasPrefix(string(name), "crun") {
			return &spec.ExecError{Path: program, Errno: unix.ENOEXEC}
		}
		return nil
	}
	return errors.New("crun does not execute the program")
}

// notExecuted is how crun says that a program could not be executed.
var notExecuted = regexp.MustCompile("^(executable file `.*` not found in \\$PATH|open executable|exec): (.*)$")

// failure reads in crun's log why a process did not start, nil for no reason.
func failure(log, program string) error {
	f, err := os.Open(log)
	if err != nil {
		return nil //nolint:nilerr // crun has not come as far as its log, which its exit status says
	}
	defer f.Close()
	var entry struct{ Level, Msg string }
	for d := json.NewDecoder(f); entry.Level != "error"; {
		if err := d.Decode(&entry); err != nil {
			return nil //nolint:nilerr // the log has no error
		}
	}
	if found := notExecuted.FindStringSubmatch(entry.Msg); found != nil {
		return &spec.ExecError{Path: program, Errno: errnoOf(found[2])}
	}
	return errors.New("crun: " + entry.Msg)
}

// errnoOf finds the errno that the C library describes so.
func errnoOf(text string) syscall.Errno {
	for errno := syscall.Errno(1); errno < 134; errno++ {
		if strings.EqualFold(errno.Error(), text) {
			return errno
		}
	}
	return syscall.EACCES
}

// listen opens a socket in the bundle. The bundle's path may be longer than a socket's address.
func (c *container) listen(name string) (*net.UnixListener, error) {
	folder, err := os.Open(c.bundle)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the path leads elsewhere by then; Destroy removes the folder
	return l, nil
}

// receive takes the terminal's master from crun, which has sent it (unix(7), SCM_RIGHTS).
func receive(from *net.UnixListener, to chan<- *os.File) error {
	if err := from.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	conn, err := from.AcceptUnix()
	if err != nil {
		return fmt.Errorf("receive terminal: %w", err)
	}
	defer conn.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 4096), oob)
	if err != nil {
		return fmt.Errorf("receive terminal: %w", err)
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(fds) != 1 {
		return errors.New("receive terminal: crun has sent none")
	}
	to <- os.NewFile(uintptr(fds[0]), "terminal")
	return nil
}
