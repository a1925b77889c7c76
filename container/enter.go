package container

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/identity"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// entrance starts a process in a container. It is the common part of firstProcess and joining
// (a command). Both execute the shim with the files of enum shim_file in shim.h, send it a plan,
// and wait for its report.
//
// They differ because libcontainer, or the child of a direct start, makes the container around the first process: it
// connects stdio, makes the terminal, and sets cgroups, session keyring, SELinux label and OOM score. For a command,
// init's child and the shim (SHIM_JOIN) do so. And the first process waits until its root is assembled:
// only then can the supervisor look the user up and send the plan.
type entrance struct {
	container *container
	process   *spec.Process // that the shim becomes
	flags     uint32        // of the plan
	kept      []*os.File    // descriptors of the process from 3 on; the shim's files follow
	pipes     *shimPipes
}

// newEntrance makes the entrance of p. The caller closes it, even if the process cannot start.
func (c *container) newEntrance(p *spec.Process, flags uint32, kept []*os.File) (*entrance, error) {
	pipes, err := newShimPipes()
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		flags |= shimListenPID
	}
	return &entrance{container: c, process: p, flags: flags, kept: kept, pipes: pipes}, nil
}

func (e *entrance) close() { e.pipes.close() }

// first returns the number of the shim's first descriptor.
func (e *entrance) first() int { return 3 + len(e.kept) }

// program returns the path of the shim's program: its own descriptor.
func (e *entrance) program() string { return "/proc/self/fd/" + strconv.Itoa(e.first()+shimProgram) }

// variable returns the environment variable that tells the shim where its descriptors are.
func (e *entrance) variable() string { return names.ShimVariable + "=" + strconv.Itoa(e.first()) }

// files returns the process's descriptors from 3 on: the files that it keeps, then the shim's.
// more are the files after the backing folders, see enum shim_file.
func (e *entrance) files(more ...*os.File) []*os.File {
	shim := []*os.File{
		shimProgram:  cmp.Or(e.container.runtime.exe, e.pipes.plan),
		shimPlanFile: e.pipes.plan, shimReport: e.pipes.reportChild,
		shimUsers: cmp.Or(e.container.users, e.pipes.plan),
	}
	return slices.Concat(e.kept, shim, e.container.backing, more)
}

// plan decides what the shim does. The container's root must be assembled.
func (e *entrance) plan() (*shimPlan, error) {
	c, p := e.container, e.process
	if len(p.Args) == 0 || p.Args[0] == "" {
		return nil, errors.New("no program to execute")
	}
	who, err := look(c, func(root *os.File) user { return userOf(root, p, c.spec.UserNamespace) }, nil)
	if err := errors.Join(err, who.err); err != nil {
		return nil, err
	}
	bounding, err := maskOf(p.Capabilities)
	if err != nil {
		return nil, err
	}
	ambient, err := maskOf(p.AmbientCapabilities)
	if err != nil {
		return nil, err
	}
	plan := &shimPlan{
		flags: e.flags, bounding: bounding, ambient: ambient & bounding, uid: who.uid, gid: who.gid, filter: c.filter,
		dir: p.Dir, candidates: spec.Candidates(p.Args[0], p.Env), args: p.Args, env: who.env,
		nfds: uint32(len(e.kept)), nbacking: uint32(len(c.backing)), profile: c.spec.AppArmorProfile,
		oomScore: int32(c.spec.OOMScoreAdj), memlock: c.runtime.memlock,
	}
	if plan.dir == "" {
		plan.dir = "/"
	}
	plan.owner, _ = c.spec.UserNamespace.Outside(who.uid)
	if c.users != nil {
		plan.flags |= shimJoinUsers
	}
	if p.NoNewPrivileges {
		plan.flags |= shimNoNewPrivs
	}
	if c.restricts(p) {
		plan.flags |= shimLandlock
	}
	if err := identity.CheckGroups(p.SupplementaryGID); err != nil {
		return nil, err
	}
	for _, g := range p.SupplementaryGID {
		if _, ok := c.spec.UserNamespace.Outside(uint32(g)); !ok {
			return nil, fmt.Errorf("supplementary group %d: the pod's user namespace has %d IDs", g, c.spec.UserNamespace.Size)
		}
		plan.groups = append(plan.groups, uint32(g))
	}
	return plan, nil
}

// user is whom a process runs as, with what environment, or why that is not known.
type user struct {
	uid, gid uint32
	env      []string // the process's, with HOME
	err      error
}

func userOf(root *os.File, p *spec.Process, users *spec.UserNamespace) (u user) {
	if !p.Root {
		u.uid, u.gid, u.err = identity.Resolve(root, p.User, p.Group, p.NumericIDs, users)
	}
	u.env = identity.WithHome(root, u.uid, p.Env)
	return u
}

// result waits until the shim has become the process or has ended. If it has become the process,
// result returns nil.
func (e *entrance) result() error {
	p := e.process
	err := e.pipes.result(p.Args[0], p.Dir)
	if !unexplained(err) {
		return err
	}
	why := func(root *os.File) error { return explain(err, root, p.Args[0], p.Dir, p.Env) }
	explained, lookErr := look(e.container, why, nil)
	if lookErr != nil {
		return err
	}
	return explained
}

// errUnkillable says why a process is neither the app or command nor has ended: a frozen cgroup of version 1 keeps a
// process that was killed until the cgroup is thawed, and a FUSE file system until its server answers or goes.
var errUnkillable = errors.New("the process cannot be killed: is the app's cgroup frozen?")

// within calls wait, which waits for reports of a process. The process is killed if wait takes longer than limit: an
// app can stop the process. If the kill does not end it, either, the error is errUnkillable.
func (e *entrance) within(limit time.Duration, p *pid1.Child, wait func() error) error {
	late := time.AfterFunc(limit, func() {
		_ = p.Signal(unix.SIGKILL) // it may have ended just now
		_ = e.pipes.report.SetReadDeadline(time.Now().Add(killLimit))
	})
	err := wait()
	switch killed := !late.Stop(); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("not started within %s: %w", limit, errUnkillable)
	case killed && (err == nil || errors.Is(err, io.EOF)):
		return fmt.Errorf("not started within %s, and killed", limit)
	}
	return err
}

// end ends a process whose start has failed. It does not wait for one that cannot be killed.
func (e *entrance) end(p spec.Running) {
	_ = p.Signal(unix.SIGKILL) // it may have ended
	select {
	case <-p.Done():
	case <-time.After(killLimit):
	}
}

// killLimit is how long a process may take to end when it has been killed.
const killLimit = time.Second

// failed adds to an error what has failed. A *spec.ExecError already says so.
func (c *container) failed(verb string, err error) error {
	var missing *spec.ExecError
	if err == nil || errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("%s container %q: %w", verb, c.spec.Name, err)
}

// openHandles opens handles on a container's first process, before it is the shim. The caller closes them.
// With ownPIDs it has a PID namespace of its own.
func openHandles(p spec.Running, ownPIDs bool) (h handles, err error) {
	proc := "/proc/" + strconv.Itoa(p.PID())
	if h.process, err = os.OpenFile(proc, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return handles{}, fmt.Errorf("open container's first process: %w", err)
	}
	if err := p.Signal(0); err != nil { // its number may be another process's
		h.close()
		return handles{}, fmt.Errorf("open container's first process: %w", err)
	}
	if err := h.openOf(ownPIDs); err != nil {
		h.close()
		return handles{}, err
	}
	h.null, _ = pathrs.OpenatInRoot(h.root, "dev/null") // a volume may be where it would be
	return h, nil
}

// openOf opens the handles in the process's folder. Its number may be another process's by now.
func (h *handles) openOf(ownPIDs bool) (err error) {
	if h.root, err = h.open("root", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("open container's root: %w", err)
	}
	if h.mounts, err = h.open("ns/mnt", unix.O_RDONLY); err != nil {
		return fmt.Errorf("open container's mount namespace: %w", err)
	}
	if !ownPIDs {
		return nil
	}
	if h.pids, err = h.open("ns/pid", unix.O_RDONLY); err != nil {
		return fmt.Errorf("open container's PID namespace: %w", err)
	}
	return nil
}

// open opens a file in the process's folder, which is of no other process.
func (h *handles) open(path string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(h.process.Fd()), path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "openat", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// handles are open descriptors of a container's root and namespaces. The runtime holds them
// from the start on, because the kernel can reuse the PID of the first process.
type handles struct {
	process *os.File // its folder in /proc, O_PATH, until it is the app; of no other process with the same PID
	root    *os.File // O_PATH
	mounts  *os.File // the mount namespace
	pids    *os.File // the PID namespace, nil if it is init's
	null    *os.File // what is at /dev/null before the app could replace it, O_PATH; nil for nothing
	cgroups *os.File // the cgroup namespace that the shim has made; nil if the app had ended before
}

// openNull opens the container's null device, for a command. That of the supervisor is the machine's: a process of
// user 0 could change its mode. The caller closes it.
func (h *handles) openNull() (*os.File, error) {
	var st unix.Stat_t
	known := h.null != nil && unix.Fstat(int(h.null.Fd()), &st) == nil
	if !known || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return nil, errors.New("the container's /dev/null is not the null device")
	}
	return pathrs.Reopen(h.null, unix.O_RDWR)
}

// openCgroups opens the cgroup namespace, once the first process is the app. That of the supervisor itself is none:
// the process ended before the shim had made its own.
func (h *handles) openCgroups() {
	opened, err := h.open("ns/cgroup", unix.O_RDONLY)
	if err != nil {
		return
	}
	found, err1 := opened.Stat()
	own, err2 := os.Stat("/proc/self/ns/cgroup")
	if err1 != nil || err2 != nil || os.SameFile(found, own) {
		opened.Close()
		return
	}
	h.cgroups = opened
}

func (h handles) close() {
	closeAll([]*os.File{h.process, h.root, h.mounts, h.pids, h.null, h.cgroups})
}

// openBacking opens the folders of spec.Spec.Backing for the shim's Landlock rules. The caller
// closes them.
func openBacking(folders []string) ([]*os.File, error) {
	var opened []*os.File
	for _, path := range folders {
		folder, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(opened)
			return nil, fmt.Errorf("open folder behind the root: %w", err)
		}
		opened = append(opened, folder)
	}
	return opened, nil
}
