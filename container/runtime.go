// Package container is the runtime that makes containers with runc's libcontainer, or directly, by forks of the
// pod's init (package pid1) that do what libcontainer is configured to do. Only this package knows libcontainer: its
// input is a spec.Spec, which is plain data, and its output a spec.Container.
package container

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/exeseal"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins and makes namespaces before the Go runtime starts
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/machine"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// Init makes the process a container's first process if libcontainer has started it for that, and
// then does not return. A program that uses this package calls Init before anything else, because
// libcontainer executes the program again for every start.
func Init() {
	if os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		libcontainer.Init()
	}
}

// Runtime implements spec.Runtime.
type Runtime struct {
	log    *slog.Logger
	cgroup string     // the pod's
	init   *pid1.Init // forks processes

	pod     *cgroup.PodGroup // from Prepare on
	filters filterCache

	state    string   // libcontainer's folder for each container
	shm      string   // the pod's /dev/shm
	exe      *os.File // this program; no container can write to it; nil for direct starts, which do not execute it again
	direct   bool     // starts apps by forks of init, not by libcontainer
	masks    string   // what hides paths, of the direct runtime
	landlock bool

	hierarchies []string // of cgroups, below the caller's /sys/fs/cgroup; nil if it has none
	folders     string   // where those are attached, see makeCgroupFolders; "" if there is one at most, of version 2

	// memlock is the caller's RLIMIT_MEMLOCK. On cgroup v2, libcontainer removes the
	// process's limit for good when it loads a device policy into the kernel, and the processes
	// started afterwards would have no limit either.
	memlock unix.Rlimit

	attributes bool       // mount_setattr(2) works
	binding    sync.Mutex // held by openOldTree

	execLimit time.Duration // of a command's shim, and of a look at an app's files
	looks     sync.Map      // by an app's name: a chan struct{}, see look

	startLimit time.Duration // of a direct start
	assembling sync.Map      // of the names of apps whose mounts are being made for one
}

// NewRuntime returns a runtime for the pod with the absolute path cgroup below
// every mounted hierarchy. init, which has begun before Prepare, is the parent of the processes. The caller must be
// root. The runtime changes nothing before Prepare.
func NewRuntime(cgroup string, init *pid1.Init, log *slog.Logger) *Runtime {
	return &Runtime{cgroup: cgroup, init: init, log: log, execLimit: spec.ExecLimit, startLimit: spec.StartLimit}
}

// SelectStarts implements spec.Selectable.
func (r *Runtime) SelectStarts(name string) {
	if r.direct = name != spec.LibcontainerStarts || r.init.Namespace("pid") == ""; !r.direct {
		return
	}
	switch missing := pid1.Missing(); {
	case missing != nil:
		r.log.Warn("apps are started by libcontainer: the kernel lacks what a direct start needs (Linux 5.12)",
			"error", missing)
		r.direct = false
	case name == spec.LibcontainerStarts:
		// libcontainer's processes would be the supervisor's children: only their PID namespace ends them with it.
		r.log.Info("apps are started by forks of init, not by libcontainer: the pod has no PID namespace of its own")
	}
}

// Prepare implements spec.Runtime. If the kernel cannot prevent apps from reading each
// other through /proc, Prepare logs a warning.
func (r *Runtime) Prepare(dir string, limits spec.Resources) error {
	if err := r.prepare(dir, limits); err != nil {
		return fmt.Errorf("prepare container runtime: %w", err)
	}
	return nil
}

func (r *Runtime) prepare(dir string, limits spec.Resources) (err error) {
	r.state, r.shm = filepath.Join(dir, "containers"), filepath.Join(dir, "shm")
	for path, mode := range map[string]os.FileMode{r.state: 0o700, r.shm: 0o777 | os.ModeSticky} {
		if err := os.Mkdir(path, 0o700); err != nil && (path != r.shm || !errors.Is(err, os.ErrExist)) {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r.memlock); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if r.pod, err = cgroup.NewPodGroup(r.cgroup, limits); err != nil {
		return err
	}
	if !r.direct {
		if err := r.prepareLibcontainer(); err != nil {
			return err
		}
	}
	if err := r.makeMasks(dir); err != nil {
		return err
	}
	r.hierarchies = r.pod.Hierarchies(names.CgroupDir)
	if err := r.makeCgroupFolders(dir); err != nil {
		return err
	}
	r.attributes = setsAttributes()
	if r.landlock = landlockABI() >= 2; !r.landlock {
		r.log.Warn("the kernel has no Landlock with REFER (Linux 5.19): " +
			"root apps with equal capabilities can read each other through /proc")
	}
	return nil
}

func (r *Runtime) prepareLibcontainer() (err error) {
	// libcontainer passes this one variable to a container's first process. The process
	// works with a single thread, so its Go runtime starts faster with one P.
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		return err
	}
	if err := fillProgram(); err != nil {
		return fmt.Errorf("copy the stager's program below its mount: %w", err)
	}
	r.exe, err = exeseal.CloneSelfExe(r.state)
	return err
}

// Support implements spec.Runtime.
func (r *Runtime) Support() spec.Support { return machine.Support() }

// MakePod implements spec.Runtime.
func (r *Runtime) MakePod() error { return r.pod.Make() }

// KillPod implements spec.Runtime.
func (r *Runtime) KillPod() error { return cgroup.KillPod(r.cgroup) }

// Close implements spec.Runtime.
func (r *Runtime) Close() error {
	var errs []error // of what Prepare made, which may have failed
	if r.pod != nil {
		errs = append(errs, r.pod.Remove())
	}
	if r.exe != nil {
		errs = append(errs, r.exe.Close())
	}
	return errors.Join(errs...)
}

// landlockABI returns the version of Landlock in the kernel, 0 for none.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// Container implements spec.Runtime.
func (r *Runtime) Container(s spec.Spec) (spec.Container, error) {
	filter, err := r.filters.of(&s.Process)
	if err != nil {
		return nil, fmt.Errorf("make seccomp filter: %w", err)
	}
	looks, _ := r.looks.LoadOrStore(s.Name, make(chan struct{}, maxLooks))
	group, killed := s.Cgroup, make(chan struct{})
	return &container{
		killed: killed, kill: sync.OnceFunc(func() { close(killed) }),
		runtime: r, spec: s, direct: r.direct || s.UserNamespace != nil || s.OwnPIDs || s.OwnDevFolder(),
		filter: filter, id: rand.Text(), looks: looks.(chan struct{}),
		cgroups: sync.OnceValues(func() (cgroups.Manager, error) { return r.pod.Manager(group) }),
	}, nil
}
