package pods

import (
	"fmt"
	"os"
	"strings"

	"kurma.io/stager/spec"

	"golang.org/x/sys/unix"
)

// AppRoot is the root of a process of a pod, with the process's mounts: a folder (O_PATH) in which the pod's apps may
// change every name at any time.
type AppRoot struct {
	*os.File

	// Users is the process's user namespace, without a path; nil for the caller's. A process that has made one for itself
	// decides so to whom the files in its root belong for the caller.
	Users *spec.UserNamespace
}

// OpenAppRoot opens the root of a process of the pod. The caller closes it.
func (p *Pod) OpenAppRoot(pid int) (AppRoot, error) {
	root, err := p.openAppRoot(pid)
	if err != nil {
		return AppRoot{}, fmt.Errorf("open root of process %d in pod %q: %w", pid, p.Plan.Name, err)
	}
	return root, nil
}

func (p *Pod) openAppRoot(pid int) (r AppRoot, err error) {
	process, err := identify(pid)
	if err != nil {
		return r, err
	}
	alive, err := process.open()
	if err != nil {
		return r, err
	}
	defer func() { _ = unix.Close(alive) }()
	// The process that has been asked for may have ended, and the PID be another's since.
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return r, err
	}
	if !strings.Contains(string(groups), p.Plan.UUID) {
		return r, errGone
	}
	users, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid)) // that of groups is the same
	if err != nil {
		return r, err
	}
	var first, hostID, size uint32
	if _, err := fmt.Sscan(string(users), &first, &hostID, &size); err == nil && first == 0 && hostID != 0 {
		r.Users = &spec.UserNamespace{HostID: hostID, Size: size}
	}
	fd, err := process.root(alive)
	if err != nil {
		return r, err
	}
	r.File = os.NewFile(uintptr(fd), "/")
	return r, nil
}
