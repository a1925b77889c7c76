package container

// #include "child.h"
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/configs"

	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// The direct runtime starts a process as a fork of the pod's init, in C, which becomes the app without an execution of
// this program or a Go runtime in between (pid1/child.c). It enforces what libcontainer is configured to do (configOf),
// and shares everything else with the runtime by libcontainer: cgroups, filters, the shim's plan and what the shim
// does.

// forked is what a child of the direct runtime gets, as plain data; see struct child_plan.
type forked struct {
	files      []*os.File // the child's descriptors from 0 on
	shim       int        // the index of the shim's first
	terminal   bool       // the first is the controlling terminal
	root       int        // the index of the root, 0 for a process in a running container
	ready      int        // with a root: the index of the pipe that says that the plan can be read
	cgroups    int        // the index of the first of ncgroups files to enter
	ncgroups   int
	ownPIDs    bool   // in a PID namespace of its own
	owner      uint32 // who makes what is missing in the root
	pids       int    // the index of the PID namespace to be in, 0 for init's
	keyring    string // the session keyring to join, or with a root to make
	label      string // SELinux's, "" for none
	operations []operation
}

// operation is one step to make a root, see struct child_op.
type operation struct {
	kind, flags    uint32
	file, other    int // indices of forked.files
	set            uint64
	source, target string
	what           string // for errors
}

// encode returns the plan in the format of child.h. A string with a NUL byte, which would be two, is an error that
// names it.
func (f *forked) encode() ([]byte, error) {
	header := C.struct_child_plan{
		nfiles: C.uint32_t(len(f.files)), nops: C.uint32_t(len(f.operations)),
		root: C.uint32_t(f.root), ready: C.uint32_t(f.ready),
		shim: C.uint32_t(f.shim), cgroups: C.uint32_t(f.cgroups), ncgroups: C.uint32_t(f.ncgroups),
		pids: C.uint32_t(f.pids), owner: C.uint32_t(f.owner),
	}
	if f.ownPIDs {
		header.flags |= C.CHILD_OWN_PIDS
	}
	if f.terminal {
		header.flags |= C.CHILD_TERMINAL
	}
	var rest []byte
	texts := []string{f.keyring, f.label}
	for _, o := range f.operations {
		op := C.struct_child_op{
			kind: C.uint32_t(o.kind), flags: C.uint32_t(o.flags),
			file: C.uint32_t(o.file), other: C.uint32_t(o.other), set: C.uint64_t(o.set),
		}
		rest = append(rest, C.GoBytes(unsafe.Pointer(&op), C.int(unsafe.Sizeof(op)))...)
		texts = append(texts, o.source, o.target)
	}
	text, err := appendStrings(nil, texts)
	if err != nil {
		return nil, err
	}
	plan := C.GoBytes(unsafe.Pointer(&header), C.int(unsafe.Sizeof(header)))
	return append(append(plan, rest...), text...), nil
}

// fork has init fork a child, into the cgroup of version 2 if there is one.
func (r *Runtime) fork(f *forked, unified *os.File) (*pid1.Child, error) {
	plan, err := f.encode()
	if err != nil {
		return nil, err
	}
	return r.init.Start(plan, f.files, unified)
}

// startDirect starts the first process.
func (c *container) startDirect(config *configs.Config, stdio spec.Stdio) (_ spec.Running, err error) {
	if err := c.runtime.pod.MakeBelow(c.spec.Cgroup, config.Cgroups.Resources); err != nil {
		return nil, err
	}
	trees, err := c.cgroupTrees()
	defer closeTrees(trees)
	if err != nil {
		return nil, fmt.Errorf("show cgroups: %w", err)
	}
	if c.backing, err = openBacking(c.spec.Backing); err != nil {
		return nil, err
	}
	if users := c.spec.UserNamespace; users != nil {
		if c.users, err = os.Open(users.Path); err != nil {
			return nil, fmt.Errorf("open user namespace: %w", err)
		}
	}
	l, err := c.newFirstEntrance(trees)
	if err != nil {
		return nil, err
	}
	defer l.entrance.close()
	a, err := c.assemble(config, l, stdio, c.runtime.startLimit)
	if err != nil {
		return nil, err
	}
	defer a.close()
	started, err := a.start()
	if err != nil {
		return nil, err
	}
	run := func() error { return c.runDirect(started, l, a) }
	if err = l.within(c.runtime.startLimit, started, run); err != nil {
		l.end(started)
		return nil, err
	}
	if a.terminal.master != nil {
		stdio.Console <- a.terminal.master
		a.terminal.master = nil
	}
	started.Runs()
	c.initPID = started.PID()
	c.oom.Start(c.initPID, c.cgroups)
	return started, nil
}

// assemble makes everything that the child needs; the caller closes it. A volume's file system may not answer: the
// thread that the kernel keeps waiting is lost then until it does (see look), and assemble returns an error after the
// limit. Another start of the app fails at once until then: each would cost a thread.
func (c *container) assemble(
	config *configs.Config, l *firstProcess, stdio spec.Stdio, limit time.Duration,
) (*assembly, error) {
	name, waiting := c.spec.Name, &c.runtime.assembling
	if _, hangs := waiting.LoadOrStore(name, true); hangs {
		return nil, errors.New("the container's volumes have not answered since an earlier start")
	}
	a := &assembly{container: c, stdio: stdio}
	tooLate := fmt.Errorf("the container's volumes do not answer within %s", limit)
	made, err := await(c, time.After(limit), tooLate, func() error {
		defer waiting.Delete(name)
		return a.make(config, l)
	}, func(error) { a.close() })
	if made != nil {
		a.close()
	}
	return a, errors.Join(made, err)
}

// runDirect completes the start of a child whose root is being made, as run does for libcontainer's.
func (c *container) runDirect(child *pid1.Child, l *firstProcess, a *assembly) (err error) {
	if err := l.pipes.made(a.operations); err != nil {
		return c.withMemoryLimit(err)
	}
	if c.handles, err = openHandles(child, c.spec.OwnPIDs); err != nil {
		return err
	}
	score := fmt.Sprintf("/proc/self/fd/%d/oom_score_adj", c.handles.process.Fd())
	if err := os.WriteFile(score, fmt.Append(nil, c.spec.OOMScoreAdj), 0); err != nil {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	plan, err := l.plan()
	if err != nil {
		return err
	}
	if err := l.pipes.send(plan); err != nil {
		return err
	}
	if _, err := a.ready.Write([]byte{0}); err != nil {
		return err
	}
	return c.becomes(l)
}

// withMemoryLimit adds the memory limit to the error of a process that the kernel has killed because of the limit. A
// stop also kills a process that has not become its program.
func (c *container) withMemoryLimit(err error) error {
	if !errors.Is(err, io.EOF) || c.spec.Resources.MemoryLimit == 0 {
		return err
	}
	m, cgroupErr := c.cgroups()
	if cgroupErr != nil {
		return err
	}
	if kills, _ := m.OOMKillCount(); kills == 0 {
		return err
	}
	return fmt.Errorf("%w; its memory limit is %d bytes", err, c.spec.Resources.MemoryLimit)
}

// made waits until a child has made its root.
func (p *shimPipes) made(operations []operation) error {
	step, errno, err := p.read()
	switch number := int(step >> C.CHILD_SHIFT); {
	case err != nil:
		return fmt.Errorf("the process that becomes the app was killed: %w", err)
	case step == 0:
		return nil
	case step&(1<<C.CHILD_SHIFT-1) == C.CHILD_OPERATION && number < len(operations):
		return fmt.Errorf("%s: %w", operations[number].what, errno)
	default:
		return fmt.Errorf("%s: %w", shimStep(step), errno)
	}
}

// removeCgroup removes the container's cgroup, if it was made.
func (c *container) removeCgroup() error {
	m, err := c.cgroups()
	if err == nil {
		err = m.Destroy()
	}
	if err != nil {
		return fmt.Errorf("destroy container %q: %w", c.spec.Name, err)
	}
	return nil
}
