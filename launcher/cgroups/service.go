package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
)

// EnterService returns the cgroup of the service that this process is in, a path below each hierarchy's root, in which
// the process may then make others; the service has Delegate=yes (systemd.resource-control(5)). The process moves into
// a group below: on cgroup v2, a group with processes cannot give controllers to groups in it.
func EnterService() (parent string, err error) {
	parent, err = serviceOf("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	group, err := Open(filepath.Join(parent, "launcher"))
	if err != nil {
		return "", err
	}
	for _, h := range group.Hierarchies {
		if !h.V2 {
			continue
		}
		if err := os.Mkdir(group.Dir(h), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("make cgroup of the launcher: %w", err)
		}
		if err := moveProcess(group.Dir(h)); err != nil {
			return "", fmt.Errorf("enter cgroup of the launcher: %w", err)
		}
	}
	return parent, nil
}

// serviceOf returns the cgroup of a service, by a file such as /proc/self/cgroup: that of the v2 hierarchy, or of
// systemd's own v1 hierarchy (cgroups(7)).
func serviceOf(file string) (string, error) {
	paths, err := cgroups.ParseCgroupFile(file)
	if err != nil {
		return "", err
	}
	for _, hierarchy := range []string{"", "name=systemd"} {
		if path := strings.Trim(paths[hierarchy], "/"); path != "" {
			return path, nil
		}
	}
	return "", errors.New("the launcher has no cgroup of its own: want a service with Delegate=yes")
}
