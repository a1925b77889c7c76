package pods

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// AppRoot is the root of a process of a pod, with the process's mounts: a folder (O_PATH) in which the pod's apps may
// change every name at any time.
type AppRoot struct {
	*os.File

	// HostID and Size say what the process's users, and likewise its groups, are for the caller: 0 to Size-1 are HostID,
	// HostID+1 and so on. HostID 0 is the caller's own users.
	HostID, Size uint32
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
	var first uint32
	if _, err := fmt.Sscan(string(users), &first, &r.HostID, &r.Size); err != nil || first != 0 {
		r.HostID, r.Size = 0, 0 // the process has made the namespace itself; its root has the owners of the one around it
	}
	fd, err := process.root(alive)
	if err != nil {
		return r, err
	}
	r.File = os.NewFile(uintptr(fd), "/")
	return r, nil
}
