package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// cgroupFiles are the open files by which a process enters a container's cgroups. Moving a whole
// process takes a kernel lock that waits for an RCU grace period, some milliseconds. Neither a
// process that is made in its cgroup (clone(2), CLONE_INTO_CGROUP, Linux 5.7) nor a thread that
// moves itself (cgroup v1's file tasks) takes the lock.
type cgroupFiles struct {
	files   []*os.File // to write 0 to: tasks of each v1 hierarchy, then cgroup.procs of the v2 one
	unified *os.File   // the folder of the v2 hierarchy, nil without one
}

func (g cgroupFiles) close() { closeAll(append(g.files, g.unified)) }

// openCgroupFiles opens the container's cgroup in every mounted hierarchy. The caller closes the
// files, also after an error.
func (c *container) openCgroupFiles() (g cgroupFiles, err error) {
	m, err := c.cgroups()
	if err != nil {
		return g, err
	}
	open := func(path string, flags int) *os.File {
		fd, e := unix.Open(path, flags|unix.O_CLOEXEC, 0) // os.OpenFile would try to poll it
		if e != nil {
			err = errors.Join(err, fmt.Errorf("open container's cgroup: %w", &os.PathError{Op: "open", Path: path, Err: e}))
			return nil
		}
		return os.NewFile(uintptr(fd), path)
	}
	unified := ""
	for controller, dir := range m.GetPaths() {
		if controller == "" {
			unified = filepath.Join(dir, c.below(dir))
		} else {
			g.files = append(g.files, open(filepath.Join(dir, "tasks"), unix.O_WRONLY))
		}
	}
	if unified != "" {
		g.files = append(g.files, open(filepath.Join(unified, "cgroup.procs"), unix.O_WRONLY))
		g.unified = open(unified, unix.O_PATH|unix.O_DIRECTORY)
	}
	return g, err
}

// below returns the path of the first process's version 2 cgroup, relative to the container's
// cgroup, whose folder is dir. An app that enables controllers for its own cgroups, as systemd does, moves to a cgroup
// below the container's, and then no process can enter the container's cgroup itself
// (cgroups(7), "no internal processes").
func (c *container) below(dir string) string {
	// Without the file the process has ended, and so has the container.
	paths, _ := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", c.initPID))
	return belowCgroup(paths[""], c.spec.Cgroup, dir, c.initPID)
}

// belowCgroup returns the part of path, the cgroup of a process, that follows the path of a container's
// cgroup, whose folder is dir; "" if the process is in another cgroup. path also has the cgroups above
// the stager's, and those that the app has made: if the container's path is in it more than once,
// the cgroup that has the process decides.
func belowCgroup(path, container, dir string, pid int) string {
	var candidates []string
	for rest, found := path+"/", true; found; {
		if _, rest, found = strings.Cut(rest, container+"/"); found {
			candidates = append(candidates, rest)
			rest = "/" + rest // the next one may begin with this one's last slash
		}
	}
	if len(candidates) == 1 {
		return candidates[0]
	}
	for _, below := range candidates {
		procs, err := os.ReadFile(filepath.Join(dir, below, "cgroup.procs"))
		if err == nil && slices.Contains(strings.Fields(string(procs)), strconv.Itoa(pid)) {
			return below
		}
	}
	return ""
}
