// Package supervisortest has a runtime of plain processes, for tests of what runs apps and does
// not care how: no namespaces, no mounts, no limits, no users. A cgroup of version 2 is all that
// holds the processes of a container together, and a Root, where there is one, is a chroot.
package supervisortest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/child"
	"kurma.io/stager/spec"
)

// patience is how long processes that were killed may take to leave their cgroup.
const patience = 30 * time.Second

// Runtime implements spec.Runtime. It supports no isolator.
type Runtime struct {
	cgroup string // of the pod
	folder string // of that, below the mount
}

// NewRuntime returns a runtime for the pod with the cgroup at that absolute path below the
// hierarchy of version 2. The caller must be root. Nothing is touched before Prepare.
func NewRuntime(cgroup string) *Runtime { return &Runtime{cgroup: cgroup} }

// Support implements spec.Runtime.
func (r *Runtime) Support() spec.Support { return spec.Support{} }

// Prepare implements spec.Runtime. It keeps nothing in dir.
func (r *Runtime) Prepare(dir string, _ spec.Resources) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if err := r.KillPod(); err != nil {
		return err
	}
	mount, err := hierarchy()
	r.folder = filepath.Join(mount, r.cgroup)
	return err
}

// MakePod implements spec.Runtime.
func (r *Runtime) MakePod() error { return os.MkdirAll(r.folder, 0o755) }

// Container implements spec.Runtime. It returns a *Container.
func (r *Runtime) Container(s spec.Spec) (spec.Container, error) {
	mount, err := hierarchy()
	if err != nil {
		return nil, err
	}
	return &Container{spec: s, folder: filepath.Join(mount, s.Cgroup)}, nil
}

// KillPod implements spec.Runtime.
func (r *Runtime) KillPod() error {
	mount, err := hierarchy()
	if err != nil {
		return err
	}
	folder := filepath.Join(mount, r.cgroup)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := kill(folder)
		events, _ := os.ReadFile(filepath.Join(folder, "cgroup.events"))
		if err != nil || !strings.Contains(string(events), "populated 1") {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("kill pod's processes: some survive SIGKILL")
		}
	}
}

// Close implements spec.Runtime.
func (r *Runtime) Close() error {
	if r.folder == "" {
		return nil // Prepare has failed, or was not called
	}
	return remove(r.folder)
}

// Container implements spec.Container.
type Container struct {
	spec   spec.Spec
	folder string // the cgroup
}

// Start implements spec.Container.
func (c *Container) Start(stdio spec.Stdio) (spec.Running, error) {
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return nil, err
	}
	p := c.spec.Process
	return c.execute(spec.Command{Args: p.Args, Env: p.Env, Dir: p.Dir}, stdio, c.spec.Files)
}

// Exec implements spec.Container.
func (c *Container) Exec(cmd spec.Command, stdio spec.Stdio) (spec.Running, error) {
	return c.execute(cmd, stdio, nil)
}

func (c *Container) execute(cmd spec.Command, stdio spec.Stdio, files []*os.File) (spec.Running, error) {
	cgroup, err := os.Open(c.folder)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	if _, err := os.Stat(filepath.Join(c.spec.Root, cmd.Dir, "/")); err != nil {
		return nil, fmt.Errorf("change to working directory: %w", err)
	}
	attr := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Chroot: c.spec.Root}
	std := []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr}
	if stdio.Terminal {
		master, terminal, err := openTerminal(stdio)
		if err != nil {
			return nil, err
		}
		defer terminal.Close()
		std = []*os.File{terminal, terminal, terminal}
		attr.Setctty = true
		pid, err := execute(cmd, std, attr)
		if err != nil {
			master.Close()
			return nil, err
		}
		stdio.Console <- master
		return pid, nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	for i, f := range std {
		if f == nil {
			std[i] = null
		}
	}
	return execute(cmd, append(std, files...), attr)
}

// execute tries the paths of the program, in order.
func execute(cmd spec.Command, files []*os.File, attr *syscall.SysProcAttr) (spec.Running, error) {
	var fds []uintptr
	for _, f := range files {
		fds = append(fds, f.Fd())
	}
	dir := cmd.Dir
	if dir == "" {
		dir = "/"
	}
	failed := &spec.ExecError{Path: cmd.Args[0], Errno: syscall.ENOENT}
	for _, path := range spec.Candidates(cmd.Args[0], cmd.Env) {
		pid, _, err := syscall.StartProcess(path, cmd.Args, &syscall.ProcAttr{Env: cmd.Env, Dir: dir, Files: fds, Sys: attr})
		if err == nil {
			return child.Follow(pid, nil)
		}
		if errno := syscall.Errno(0); errors.As(err, &errno) && errno != syscall.ENOENT {
			failed.Errno = errno
		}
	}
	return nil, failed
}

// PIDs implements spec.Container.
func (c *Container) PIDs() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(c.folder, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Kill implements spec.Container.
func (c *Container) Kill() error { return kill(c.folder) }

// Destroy implements spec.Container.
func (c *Container) Destroy() error { return remove(c.folder) }

// kill kills what is in a cgroup and below.
func kill(folder string) error {
	err := os.WriteFile(filepath.Join(folder, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// remove removes a cgroup without processes, and all below it; a process that has just ended
// keeps its cgroup for a moment.
func remove(folder string) error {
	below, _ := filepath.Glob(folder + "/*/cgroup.procs")
	for _, procs := range below {
		if err := remove(filepath.Dir(procs)); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := os.Remove(folder)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// hierarchy is where cgroups of version 2 are mounted.
func hierarchy() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("no cgroup2 is mounted")
}
