package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"kurma.io/stager/container/identity"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
)

// entrance is a process on its way into a container: what the first process (launch) and a
// command (joining) have in common. Both execute the shim with the files of enum shim_file
// in shim.h, send it a plan, and wait for its report.
//
// They differ where libcontainer makes the container around the first process:
//   - libcontainer executes the shim from inside the finished container, and connects stdio and
//     makes the terminal itself. For a command the supervisor does both, in exec.go;
//   - libcontainer puts the first process into its cgroups, gives it the session keyring, the
//     SELinux label and the OOM score. For a command the supervisor and the shim do it (SHIM_JOIN);
//   - the first process waits in libcontainer's init until its root is assembled. Only then can
//     the supervisor look the user up and send the plan.
type entrance struct {
	container *container
	process   *spec.Process // that the shim becomes
	flags     uint32        // of the plan
	kept      []*os.File    // that the process has from 3 on, before the shim's files
	pipes     *shimPipes
}

// newEntrance makes the entrance of p. The caller closes it, whatever becomes of the process.
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

// first is the shim's first descriptor.
func (e *entrance) first() int { return 3 + len(e.kept) }

// program is the path by which the shim is executed: its own descriptor.
func (e *entrance) program() string { return "/proc/self/fd/" + strconv.Itoa(e.first()+shimProgram) }

// variable tells the shim where its descriptors are.
func (e *entrance) variable() string { return names.ShimVariable + "=" + strconv.Itoa(e.first()) }

// files are the process's descriptors from 3 on: what it keeps, then the shim's. more
// are those behind the backing folders, see enum shim_file.
func (e *entrance) files(more ...*os.File) []*os.File {
	shim := []*os.File{shimProgram: e.container.runtime.exe, shimPlanFile: e.pipes.plan, shimReport: e.pipes.reportChild}
	return slices.Concat(e.kept, shim, e.container.backing, more)
}

// plan decides what the shim does. The container's root must be assembled.
func (e *entrance) plan() (*shimPlan, error) {
	c, p := e.container, e.process
	if len(p.Args) == 0 || p.Args[0] == "" {
		return nil, errors.New("no program to execute")
	}
	uid, gid, err := identityOf(c.places.root, p)
	if err != nil {
		return nil, err
	}
	bounding, err := boundingSet(p.Capabilities)
	if err != nil {
		return nil, err
	}
	plan := &shimPlan{
		flags: e.flags, bounding: bounding, uid: uid, gid: gid, filter: c.filter,
		dir: p.Dir, candidates: candidates(p.Args[0], p.Env), args: p.Args, env: p.Env,
		nfds: uint32(len(e.kept)), nbacking: uint32(len(c.backing)), profile: c.spec.AppArmorProfile,
		oomScore: int32(c.spec.OOMScoreAdj), memlock: c.runtime.memlock,
	}
	if plan.dir == "" {
		plan.dir = "/"
	}
	if p.NoNewPrivileges {
		plan.flags |= shimNoNewPrivs
	}
	if c.runtime.restrict(p) {
		plan.flags |= shimLandlock
	}
	for _, g := range p.SupplementaryGID {
		if g < 0 || g > identity.Max {
			return nil, fmt.Errorf("supplementary group %d is not a number from 0 to %d", g, uint32(identity.Max))
		}
		plan.groups = append(plan.groups, uint32(g))
	}
	return plan, nil
}

func identityOf(root *os.File, p *spec.Process) (uid, gid uint32, err error) {
	if p.Root {
		return 0, 0, nil
	}
	return identity.Resolve(root, p.User, p.Group)
}

// result waits until the shim has become the process, which is nil, or has ended.
func (e *entrance) result() error {
	p := e.process
	return explain(e.pipes.result(p.Args[0], p.Dir), e.container.places.root, p.Args[0], p.Dir, p.Env)
}

// failed adds to an error what has failed. An *supervisor.ExecError says it already.
func (c *container) failed(verb string, err error) error {
	var missing *supervisor.ExecError
	if err == nil || errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("%s container %q: %w", verb, c.spec.Name, err)
}

// openPlaces opens the places of a running process. The caller closes them.
func openPlaces(pid int) (p places, err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	if p.root, err = os.OpenFile(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return places{}, fmt.Errorf("open container's root: %w", err)
	}
	if p.mounts, err = os.Open(proc + "/ns/mnt"); err != nil {
		p.close()
		return places{}, fmt.Errorf("open container's mount namespace: %w", err)
	}
	return p, nil
}

// places are where a container's processes are. They are held open from its start
// on: another process could have the number of the first process one day.
type places struct {
	root   *os.File // O_PATH
	mounts *os.File // the mount namespace
}

func (p places) close() { closeAll([]*os.File{p.root, p.mounts}) }

// openBacking opens the folders of spec.Spec.Backing for the shim's Landlock
// rules. The caller closes them.
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
