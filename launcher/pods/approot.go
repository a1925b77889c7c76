package pods

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenAppRoot opens the root of a process of the pod, with the process's mounts: a folder (O_PATH) in which the
// pod's apps may change every name at any time. The caller closes it.
func (p *Pod) OpenAppRoot(pid int) (*os.File, error) {
	root, err := p.openAppRoot(pid)
	if err != nil {
		return nil, fmt.Errorf("open root of process %d in pod %q: %w", pid, p.Plan.Name, err)
	}
	return root, nil
}

func (p *Pod) openAppRoot(pid int) (*os.File, error) {
	process, err := identify(pid)
	if err != nil {
		return nil, err
	}
	alive, err := process.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(alive) }()
	// The process that has been asked for may have ended, and the PID be another's since.
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(groups), p.Plan.UUID) {
		return nil, errGone
	}
	fd, err := process.root(alive)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/"), nil
}
