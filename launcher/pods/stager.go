package pods

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"kurma.io/stager/launcher/cgroups"

	"golang.org/x/sys/unix"
)

// stager is a started stager.
type stager struct {
	Process
	ready  <-chan error // one value: nil when the ready descriptor was closed
	exited <-chan Exit  // one value
}

// started is the message of the thread that starts a process.
type started struct {
	process *os.Process
	err     error
}

// startStager starts the stager in namespaces of its own. The thread that forks it lives
// until the stager has ended: PR_SET_PDEATHSIG kills the stager when that thread ends, and
// the thread, in the pod's mount namespace, cannot be used for anything else.
func (p *Pod) startStager(group *cgroups.Group) (*stager, error) {
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make ready pipe: %w", err)
	}
	start, exited := make(chan started), make(chan Exit, 1)
	onOwnThread(func() {
		process, err := p.fork(group, readyWrite)
		_ = readyWrite.Close() // the stager has the only copy now
		start <- started{process, err}
		if err == nil {
			exited <- wait(process)
		}
	})
	s := <-start
	if s.err != nil {
		_ = readyRead.Close()
		return nil, s.err
	}
	identity, err := identify(s.process.Pid)
	if err != nil {
		identity = Process{PID: s.process.Pid} // it has ended already; exited receives how
	}
	ready := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, readyRead)
		ready <- errors.Join(err, readyRead.Close())
	}()
	return &stager{Process: identity, ready: ready, exited: exited}, nil
}

// fork starts the stager on the calling thread, as Kurma does: in its own session, with
// /dev/null as stdin, the log as stdout and stderr, and the ready pipe as descriptor 4.
func (p *Pod) fork(group *cgroups.Group, ready *os.File) (*os.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(p.LogPath(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	unified, err := group.V2Dir()
	if err != nil {
		return nil, err
	}
	if unified != nil {
		defer unified.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(unified.Fd())
	}
	leave, err := group.EnterThread()
	if err != nil {
		return nil, err
	}
	process, err := p.forkInside(group, &os.ProcAttr{
		Dir:   "/",
		Env:   p.Plan.Env,
		Files: []*os.File{null, log, log, nil, ready},
		Sys:   attr,
	})
	if err := leave(); err != nil {
		// As it is still in the pod's group, the thread would be frozen and killed with it.
		if process != nil {
			_ = process.Kill()
			_, _ = process.Wait()
		}
		return nil, fmt.Errorf("leave pod's cgroup: %w", err)
	}
	return process, err
}

func (p *Pod) forkInside(group *cgroups.Group, attr *os.ProcAttr) (*os.Process, error) {
	if err := p.enterNew(group); err != nil {
		return nil, err
	}
	unix.Umask(0o022) // unshare(2) of the mount namespace gave this thread its own umask
	process, err := os.StartProcess(p.Plan.Exec[0], p.Plan.Exec, attr)
	if err != nil {
		return nil, fmt.Errorf("start stager: %w", err)
	}
	return process, nil
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
