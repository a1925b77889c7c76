package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

const (
	// settingsPatience is how long `run` may take to read its settings to the end.
	settingsPatience = 10 * time.Second
)

// callInEnv is a call-in's complete environment.
func callInEnv() []string { return []string{"HOME=/root"} }

// enter moves the calling thread into the stager's mount and network namespace, and into
// no other. The caller has locked the thread and uses it for nothing else afterwards.
func (p *Pod) enter() error {
	if p.State.Phase == Dead {
		return fmt.Errorf("pod %q is dead; launcher gc deletes what is left of it", p.Plan.Name)
	}
	if p.State.Phase == Exited {
		return fmt.Errorf("pod %q %w", p.Plan.Name, ErrEnded)
	}
	fd, err := p.State.Stager.open()
	if err != nil && p.State.Stager.PID == 0 {
		return fmt.Errorf("pod %q is %s", p.Plan.Name, p.State.Phase) // its stager has not been started
	}
	if err != nil {
		return fmt.Errorf("pod %q %w", p.Plan.Name, ErrEnded)
	}
	defer func() { _ = unix.Close(fd) }()
	root, err := p.State.Stager.root(fd)
	if err != nil {
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	defer func() { _ = unix.Close(root) }()
	// A thread that shares root and working directory with others may not
	// change its mount namespace, see setns(2).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	// If the launcher itself runs in a chroot, the stager's root is not the root of its
	// mount namespace.
	if err := errors.Join(unix.Fchdir(root), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter root of pod %q: %w", p.Plan.Name, err)
	}
	return nil
}

// Become turns this process into a call-in of the stager: the process, its descriptors
// and its signals stay the same, so that nothing is between the call-in and the caller. Name is a
// file name in the stager's folder of call-ins. Become returns only with an error,
// which lists the stager's call-ins if that one is not there.
func (p *Pod) Become(name string, args ...string) error {
	runtime.LockOSThread()
	if err := p.enter(); err != nil {
		return err
	}
	path := names.CallInDir + "/" + name
	return p.notExecuted(name, syscall.Exec(path, append([]string{path}, args...), callInEnv()))
}

// notExecuted explains why a call-in could not be executed. The calling thread has
// entered the pod.
func (p *Pod) notExecuted(name string, err error) error {
	path := names.CallInDir + "/" + name
	// A program whose interpreter is missing is also ENOENT.
	if _, missing := os.Lstat(path); !errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("execute %s in pod %q: %w", path, p.Plan.Name, err)
	}
	entries, err := os.ReadDir(names.CallInDir)
	if err != nil || len(entries) == 0 {
		return fmt.Errorf("the stager of pod %q has no call-ins", p.Plan.Name)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	return fmt.Errorf("the stager of pod %q has no call-in %q; known call-ins: %s", p.Plan.Name, name, strings.Join(have, ", "))
}

// Call runs a call-in as a child with the given descriptors 0, 1 and 2. It passes the
// signals that are sent to this process to the child, and returns the child's exit status,
// 128+N if signal N ended it. If settings is not nil the child must read it from
// descriptor 3 to its end within 10 seconds of its start; if it does not, Call kills it
// and returns an error.
func (p *Pod) Call(stdio [3]*os.File, settings []byte, name string, args ...string) (int, error) {
	return p.CallUntil(nil, stdio, settings, name, args...)
}

// CallUntil is Call, and kills the child when stop is closed.
func (p *Pod) CallUntil(stop <-chan struct{}, stdio [3]*os.File, settings []byte, name string, args ...string) (int, error) {
	var feed *settingsFeed
	if settings != nil {
		var err error
		if feed, err = newFeed(settings); err != nil {
			return 0, err
		}
		defer feed.close()
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH)
	defer signal.Stop(signals)
	child, ended, err := p.startCall(stdio, feed, name, args)
	if err != nil {
		return 0, err
	}
	late := time.NewTimer(settingsPatience)
	defer late.Stop()
	unread := false
	for {
		select {
		case status := <-ended:
			if unread {
				return 0, fmt.Errorf("%s has not read its settings within %s and was killed", name, settingsPatience)
			}
			return status.Code, nil
		case sig := <-signals:
			if isForChild(sig) {
				_ = child.Signal(sig) // a child that has ended is reported by its channel
			}
		case <-stop:
			_ = child.Kill()
			stop = nil
		case <-late.C:
			if unread = feed != nil && !feed.isRead(); unread {
				_ = child.Kill()
			}
		}
	}
}

// Execute runs a call-in as Call does, without signals, and kills it when ctx ends: the
// supervisor then kills the call-in's command with all processes of its session. The error is
// ctx's cause then.
func (p *Pod) Execute(ctx context.Context, stdio [3]*os.File, settings []byte, name string, args ...string) (int, error) {
	var feed *settingsFeed
	if settings != nil {
		var err error
		if feed, err = newFeed(settings); err != nil {
			return 0, err
		}
		defer feed.close()
	}
	child, ended, err := p.startCall(stdio, feed, name, args)
	if err != nil {
		return 0, err
	}
	select {
	case exit := <-ended:
		return exit.Code, nil
	case <-ctx.Done():
		_ = child.Kill() // if it has just ended, ended receives how
		<-ended
		return 0, context.Cause(ctx)
	}
}

// startCall forks the call-in on a thread inside the pod. The thread waits for it: by
// PR_SET_PDEATHSIG the call-in dies with this process, or earlier with the thread.
func (p *Pod) startCall(stdio [3]*os.File, feed *settingsFeed, name string, args []string) (*os.Process, <-chan Exit, error) {
	files := stdio[:]
	if feed != nil {
		files = append(files, feed.read)
	}
	path := names.CallInDir + "/" + name
	start, ended := make(chan started), make(chan Exit, 1)
	onOwnThread(func() {
		if err := p.enter(); err != nil {
			start <- started{err: err}
			return
		}
		process, err := os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
			Env:   callInEnv(),
			Files: files,
			Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
		if err != nil {
			start <- started{err: p.notExecuted(name, err)}
			return
		}
		start <- started{process: process}
		ended <- wait(process)
	})
	s := <-start
	return s.process, ended, s.err
}

// isForChild reports whether a signal must be passed to the child. The controlling terminal sends SIGINT,
// SIGQUIT and SIGWINCH to its whole foreground process group, the child included, which
// would receive them twice.
func isForChild(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
		terminal, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return true // there is none
		}
		defer terminal.Close()
		group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
		return err != nil || group != unix.Getpgrp()
	}
	return true
}

// settingsFeed is a pipe that the settings of a `run` are written to.
type settingsFeed struct {
	read    *os.File
	written chan error
}

func newFeed(settings []byte) (*settingsFeed, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make settings pipe: %w", err)
	}
	f := &settingsFeed{read: read, written: make(chan error, 1)}
	go func() {
		_, err := io.Copy(write, bytes.NewReader(settings))
		f.written <- errors.Join(err, write.Close())
	}()
	return f, nil
}

// isRead reports whether all has been written to the pipe and read from it. Our copy of the
// read end is kept to find that out.
func (f *settingsFeed) isRead() bool {
	select {
	case err := <-f.written:
		if err != nil {
			return false
		}
	default:
		return false
	}
	left, err := unix.IoctlGetInt(int(f.read.Fd()), unix.TIOCINQ)
	return err == nil && left == 0
}

func (f *settingsFeed) close() { _ = f.read.Close() }
