package pods

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/launcher/cgroups"

	"golang.org/x/sys/unix"
)

// stager is a started stager. The process has a pidfd from the fork on, so that its parent can signal it also without
// descriptors left.
type stager struct {
	process *os.Process
	id      Process      // without a start time if it had ended already
	ready   <-chan error // one value: nil when the ready descriptor was closed
	exited  <-chan Exit  // one value
}

// onThread starts a process by fork, on a thread that lives until the process has ended: fork may move the thread to
// other namespaces, and by PR_SET_PDEATHSIG the process dies with the thread. exited gets one value.
func onThread(fork func() (*os.Process, error)) (process *os.Process, exited <-chan Exit, err error) {
	forked, exit := make(chan error), make(chan Exit, 1)
	thread.Go(func() {
		started, err := fork()
		process = started
		forked <- err
		if err == nil {
			exit <- wait(started)
		}
	})
	err = <-forked
	return process, exit, err
}

// alone is onThread for a process that outlives its parent: no thread waits for it.
func alone(fork func() (*os.Process, error)) (process *os.Process, exited <-chan Exit, err error) {
	err = thread.New(func() error {
		process, err = fork()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	exit := make(chan Exit, 1)
	go func() {
		if pidfd, err := unix.PidfdOpen(process.Pid, 0); err == nil {
			_ = awaitEnd(pidfd)
		}
		exit <- wait(process)
	}()
	return process, exit, nil
}

// startStager starts the stager in its own namespaces after receiving nil, the only value of connected: the pod is
// connected to its networks.
func (k *Keeper) startStager(group *cgroups.Group, connected <-chan error) (*stager, error) {
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make ready pipe: %w", err), <-connected)
	}
	fork := onThread
	if k.State.Unattended {
		fork = alone
	}
	process, exited, err := fork(func() (*os.Process, error) { return k.fork(group, readyWrite, connected) })
	_ = readyWrite.Close() // the stager has the only copy now
	if err != nil {
		_ = readyRead.Close()
		return nil, err
	}
	s := &stager{process: process, exited: exited}
	if s.id, err = identify(process.Pid); err != nil && !errors.Is(err, errGone) { // exited receives how it has gone
		_ = readyRead.Close()
		_, killed := s.kill(group)
		return nil, errors.Join(fmt.Errorf("identify stager: %w", err), killed)
	}
	ready := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, readyRead)
		ready <- errors.Join(err, readyRead.Close())
	}()
	s.ready = ready
	return s, nil
}

// signal sends a signal to a stager, which may have ended.
func (s *stager) signal(sig syscall.Signal) error {
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the stager: %w", err)
	}
	return nil
}

// killPatience is how long a process that was killed may take to end: the kernel ends it at once unless it sleeps
// uninterruptibly.
const killPatience = 30 * time.Second

// kill kills a stager, with all processes of the pod, and waits for its end.
func (s *stager) kill(group *cgroups.Group) (Exit, error) {
	err := errors.Join(s.signal(syscall.SIGKILL), group.Kill())
	late := time.NewTimer(killPatience)
	defer late.Stop()
	select {
	case exit := <-s.exited:
		return exit, nil // takeDown kills the group again, and returns the error
	case <-late.C:
		return killed(), errors.Join(err, fmt.Errorf("the stager, process %d, is killed and has not ended within %s",
			s.process.Pid, killPatience))
	}
}

// fork starts the stager on the calling thread, or for an unattended pod the process that becomes it, as Kurma does: in
// its own session, with
// /dev/null as stdin, the log as stdout and stderr, and the ready pipe as descriptor 4.
func (k *Keeper) fork(group *cgroups.Group, ready *os.File, connected <-chan error) (*os.Process, error) {
	if k.enter != nil {
		if err := k.enter(); err != nil {
			return nil, errors.Join(err, <-connected)
		}
	}
	files, err := k.openHost(group)
	defer files.close()
	if err == nil {
		err = k.enterNew(group)
	}
	if err := errors.Join(err, <-connected); err != nil {
		return nil, err
	}
	if k.logBegin, err = files.log.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	if files.pids != nil && !k.State.Unattended { // Go ends a child with SysProcAttr.Pdeathsig that sees no parent
		return nil, errors.New("start stager: only an unattended pod is in another PID namespace")
	}
	if files.pids != nil { // of what this thread starts
		if err := unix.Setns(int(files.pids.Fd()), unix.CLONE_NEWPID); err != nil {
			return nil, fmt.Errorf("enter PID namespace: %w", err)
		}
	}
	unix.Umask(0o022) // unshare(2) of the mount namespace gave this thread its own umask
	attr := &os.ProcAttr{
		Dir: "/", Env: k.Plan.Env, Files: []*os.File{files.null, files.log, files.log, nil, ready},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if k.State.Unattended {
		attr.Files = append(attr.Files, files.members...)
		words := slices.Concat(k.starter, []string{strconv.Itoa(len(files.members))}, k.Plan.Exec)
		process, err := os.StartProcess("/proc/self/exe", words, attr)
		if err != nil {
			return nil, fmt.Errorf("start stager: %w", err)
		}
		return process, nil
	}
	attr.Sys.Pdeathsig = syscall.SIGKILL
	return files.entrance.Fork(func(cgroup *os.File) (*os.Process, error) {
		if cgroup != nil {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cgroup.Fd())
		}
		process, err := startProcess(k.Plan.Exec[0], k.Plan.Exec, attr)
		if err != nil {
			return nil, fmt.Errorf("start stager: %w", err)
		}
		return process, nil
	})
}

// busyPatience is how long a program may be busy.
const busyPatience = 10 * time.Second

// startProcess starts a program that this process may just have written. A process that another thread has forked
// meanwhile has that file open for writing too, until the kernel closes it in execve(2), which refuses
// to execute a file that is open for writing (ETXTBSY, https://go.dev/issue/22315).
func startProcess(program string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		process, err := os.StartProcess(program, args, attr)
		if !errors.Is(err, syscall.ETXTBSY) || time.Since(begin) > busyPatience {
			return process, explain(err, program)
		}
	}
}

// explain adds to an error of execve(2) that the program's file system is mounted noexec.
func explain(err error, program string) error {
	var fs unix.Statfs_t
	if errors.Is(err, syscall.EACCES) && unix.Statfs(program, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%w: the file system of the pod's files is mounted noexec", err)
	}
	return err
}

// readyDescriptor is the stager's end of the ready pipe.
const readyDescriptor = 4

// Exec becomes the stager of an unattended pod: it is the main function of a process that StartUnattended starts, with
// the words that follow the starter's. It returns an error. The process enters the pod's cgroup here: one that entered
// it in the fork, and that a limit or the freezer of the group stops before its exec, would stop its parent with it
// (vfork(2)).
func Exec(words []string) error {
	if len(words) < 2 {
		return errors.New("start stager: no arguments")
	}
	members, err := strconv.Atoi(words[0])
	if err != nil {
		return fmt.Errorf("start stager: %w", err)
	}
	runtime.LockOSThread()
	var group []*os.File
	for i := range members {
		fd := readyDescriptor + 1 + i
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) // for an error
		group = append(group, os.NewFile(uintptr(fd), name))
	}
	if err := cgroups.MoveIn(group); err != nil {
		return fmt.Errorf("start stager: %w", err)
	}
	for _, file := range group {
		_ = file.Close()
	}
	reader := []unix.PollFd{{Fd: readyDescriptor}}
	if _, err := unix.Poll(reader, 0); err == nil && reader[0].Revents&unix.POLLERR != 0 {
		return errors.New("start stager: nobody waits for it any more")
	}
	begin := time.Now()
	err = unix.Exec(words[1], words[1:], os.Environ())
	for errors.Is(err, unix.ETXTBSY) && time.Since(begin) < busyPatience { // see startProcess
		time.Sleep(time.Millisecond)
		err = unix.Exec(words[1], words[1:], os.Environ())
	}
	return explain(fmt.Errorf("start stager: %w", &os.PathError{Op: "execve", Path: words[1], Err: err}), words[1])
}

// hostFiles are what the start of a stager needs and cannot open in the pod's mount namespace.
type hostFiles struct {
	null, log *os.File
	pids      *os.File // the namespace of PIDs, nil for this process's
	entrance  *cgroups.Entrance
	members   []*os.File // of the group, instead of the entrance, for an unattended pod
}

func (k *Keeper) openHost(group *cgroups.Group) (f hostFiles, err error) {
	if f.null, err = os.Open(os.DevNull); err != nil {
		return f, err
	}
	if f.log, err = os.OpenFile(k.LogPath(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return f, err
	}
	if k.Plan.PIDNamespace != "" {
		if f.pids, err = os.Open(k.Plan.PIDNamespace); err != nil {
			return f, err
		}
	}
	if k.State.Unattended {
		f.members, err = group.OpenMembers()
	} else {
		f.entrance, err = group.OpenEntrance()
	}
	return f, err
}

// close closes what has been opened.
func (f hostFiles) close() {
	_ = f.null.Close()
	_ = f.log.Close()
	if f.pids != nil {
		_ = f.pids.Close()
	}
	f.entrance.Close()
	for _, file := range f.members {
		_ = file.Close()
	}
}

func wait(process *os.Process) Exit {
	state, err := process.Wait()
	if err != nil {
		return Exit{Code: 255}
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Exit{Code: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal())}
	}
	return Exit{Code: status.ExitStatus()}
}
