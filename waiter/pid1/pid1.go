// Package pid1 starts the supervisor from the process that the daemon starts. It is written in Go
// only, for stagers without cgo:
//
//	daemon
//	 └─ waiter        wait: stays in the daemon's namespaces, but for the mount namespace, which is the
//	     │            supervisor's; has the supervisor stop the pod on the daemon's signals, ends as
//	     │            the supervisor ends
//	     └─ supervisor  takeLine: the same program again, PID 1 of the pod's namespaces
//
// A Go runtime stays in the waiter for the life of the pod, some five megabytes. The
// reference stager has the same two processes with a waiter in C, which takes a tenth of that and
// can start helper processes (package waiter).
//
// The supervisor ignores the signals of its own faults (supervisor.IgnoreSignals), because a handler in Go cannot see
// whether an app has sent one. A fault ends the supervisor all the same, but the Go runtime does not report it: the
// waiter reports the signal.
//
// Main is the main function of a stager that needs nothing else; it puts wait, takeLine and boot.Supervise together.
//
// What the package does not cover: an app of user 0 can send SIGSTOP to a child of the supervisor between its
// fork and its exec. The Go runtime forks with CLONE_VFORK, so the forking thread then waits where no
// stop-the-world passes, and the supervisor hangs until the daemon kills it. Only code outside the Go runtime
// ends that: package container has a thread in C for it. And when the supervisor or the waiter is killed, an app that
// holds a lock that the kernel takes to close the supervisor's files, as lifeline.c of package waiter explains, keeps
// the pod running until the daemon kills its cgroup. A runtime without cgo that starts processes as apps
// run, as examples/crun does, is for apps that are trusted with the pod.
package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
)

// firstDescriptor and the descriptors above are free for the pipes: the daemon passes some below.
const firstDescriptor = 10

// wait starts this program again as the supervisor, in new namespaces as in clone(2) and a mount namespace whose root
// is the stager's, and returns its exit code when it has ended. It passes SIGTERM, SIGINT and SIGQUIT on, not as
// signals but for line.Watch. It keeps the ready pipe open until the supervisor reports that the pod is up or has
// ended: the daemon must not see that pipe's end earlier than the stager's. When this process ends in any way, so
// does the supervisor. wait is called first in main, once, and not by a process for which takeLine returns a line.
func wait(namespaces uintptr) (code int, err error) {
	runtime.LockOSThread() // this thread enters the supervisor's mount namespace; its end kills the supervisor
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)
	if err := errors.Join(enterLeaf(), unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)); err != nil {
		return 1, fmt.Errorf("wait for supervisor: %w", err)
	}
	lifeline, err := newPipe()
	if err != nil {
		return 1, err
	}
	report, err := newPipe()
	if err != nil {
		return 1, err
	}
	cmd, err := startSupervisor(namespaces, lifeline.r, report.w)
	if err != nil {
		return 1, fmt.Errorf("start supervisor: %w", err)
	}
	in := boot.TakeDescriptors(os.Environ())
	for _, files := range in.Stdio {
		for _, f := range files {
			_ = f.Close() // the supervisor has them; nil for none is an error that does not matter
		}
	}
	go releaseReady(report.r, in.Ready)
	defer runtime.KeepAlive(in.Ready) // a start that fails closes it by the end of this process alone
	go func() {
		for range signals {
			_, _ = lifeline.w.Write([]byte{1}) // the supervisor may have ended just now
		}
	}()
	err = cmd.Wait()
	runtime.KeepAlive(lifeline.w) // its end tells the supervisor that this process is gone
	killChildren()
	if status := cmd.ProcessState; status != nil && status.Exited() {
		return status.ExitCode(), nil
	}
	return 1, fmt.Errorf("supervisor: %w", err)
}

// releaseReady closes the ready pipe when the supervisor has reported that the pod is up. At the
// end of a supervisor that has not, the pipe stays open: the daemon must not see its end first.
func releaseReady(report, ready *os.File) {
	if n, _ := report.Read(make([]byte, 1)); n == 1 && ready != nil {
		_ = ready.Close()
	}
}

// startSupervisor starts this program as the supervisor, from this thread.
func startSupervisor(namespaces uintptr, lifeline, report *os.File) (*exec.Cmd, error) {
	if err := enterMountNamespace(); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{lifeline, report} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	mark := fmt.Sprintf("%d,%d,%d", lifeline.Fd(), report.Fd(), namespaces)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args[:1], Env: append(os.Environ(), names.SupervisorVariable+"="+mark),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &unix.SysProcAttr{Cloneflags: namespaces},
	}
	if namespaces&unix.CLONE_NEWPID != 0 {
		// In the host's PID namespace the supervisor must live to kill the pod's processes, see line.Watch.
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	err := cmd.Start()
	return cmd, errors.Join(err, lifeline.Close(), report.Close())
}

// enterMountNamespace moves this thread to a new mount namespace, in which the stager's root is the
// namespace's root and not a chroot below the host's: a process that leaves the chroot, by setns(2)
// for instance, is still in the stager's root. The daemon's later mounts still appear in it.
func enterMountNamespace() error {
	// CLONE_FS: a thread that shares its root with others cannot change it (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(root)
	own, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open mount namespace: %w", err)
	}
	defer unix.Close(own)
	// Joining a mount namespace leads to its root, one's own included (setns(2)).
	if err := unix.Setns(own, unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := makeSlaves(root); err != nil {
		return err
	}
	if err := unix.Fchdir(root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	path, err := unix.Getwd()
	if err != nil || path == "/" {
		return err // the daemon has made it the root
	}
	return pivot(path)
}

// makeSlaves makes all mounts slaves but those of the volumes in the stager's root, for the reason that package waiter
// has (enter_mount_namespace in enter.c).
func makeSlaves(root int) error {
	volumes := strings.TrimPrefix(names.VolumesDir, "/")
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	tree, missing := unix.OpenTree(root, volumes, flags)
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the stager's: %w", err)
	}
	if missing != nil {
		return nil
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", root, volumes, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount volumes: %w", err)
	}
	return nil
}

// pivot makes the folder at path the root of the mount namespace (pivot_root(2), NOTES), and the working directory.
func pivot(path string) error {
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(old)
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make root a mount point: %w", err)
	}
	if err := unix.Chdir(path); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	switch err := unix.PivotRoot(".", "."); {
	case errors.Is(err, unix.EINVAL):
		// The host runs from its initial RAM disk, which cannot be moved away; to be mounted over
		// hides it as well.
		err := unix.Mount(path, "/", "", unix.MS_MOVE, "")
		if err == nil {
			err = unix.Chroot(".")
		}
		if err != nil {
			return fmt.Errorf("move root: %w", err)
		}
	case err != nil:
		return os.NewSyscallError("pivot_root", err)
	default:
		return detach(old)
	}
	return nil
}

// detach detaches the host's root, which pivot_root(2) has put on top of the new one. Its mounts become slaves first:
// an unmount of the volumes that the daemon shares with the host would unmount what lies in them there, and in the new
// root.
func detach(old int) error {
	err := unix.Fchdir(old)
	if err == nil {
		err = unix.Mount("", ".", "", unix.MS_SLAVE|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("make host's mounts slaves: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach host's root: %w", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// enterLeaf enters a leaf cgroup if only cgroup v2 is mounted: a cgroup that has processes cannot
// enable controllers for its children (cgroups(7), "no internal processes"). The apps' cgroups will
// be siblings of the leaf.
func enterLeaf() error {
	var fs unix.Statfs_t
	if unix.Statfs(names.CgroupDir, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	leaf := filepath.Join(names.CgroupDir, names.LeafCgroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0)
}

// killChildren kills the processes that a supervisor in the host's PID namespace has left: its
// orphans become this process's children, one generation after the other. One in uninterruptible sleep does
// not prevent the end of this process.
func killChildren() {
	const limit, moment = 5 * time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(moment) {
		tasks, _ := filepath.Glob("/proc/self/task/*/children")
		if len(tasks) == 0 {
			return // a kernel without them (proc_pid_children(5))
		}
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for _, child := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(child); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		for pid, err := 1, error(nil); pid > 0; {
			if pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); errors.Is(err, unix.ECHILD) {
				return
			}
		}
	}
}

// pipe makes a pipe with descriptors above the daemon's.
type pipe struct{ r, w *os.File }

func newPipe() (pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return pipe{}, os.NewSyscallError("pipe2", err)
	}
	var files [2]*os.File
	for i, fd := range ends {
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, firstDescriptor)
		if err != nil {
			return pipe{}, os.NewSyscallError("fcntl", err)
		}
		unix.Close(fd)
		files[i] = os.NewFile(uintptr(high), "pipe "+strconv.Itoa(high))
	}
	return pipe{files[0], files[1]}, nil
}
