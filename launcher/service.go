package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/cgroups"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// ownCgroup is the value of --cgroup-parent for the cgroup that the launcher is in.
const ownCgroup = "own"

// cgroupParent returns the cgroup in which a pod's cgroup is made: a path below each hierarchy's root, ""
// for the configuration's.
// For "own", which is for a service with Delegate=yes (systemd.resource-control(5)), the launcher moves
// into a group below its own: on cgroup v2, a group with processes cannot give controllers to groups in it.
func cgroupParent(option string) (string, error) {
	if option != ownCgroup {
		return strings.Trim(option, "/"), nil
	}
	memberships, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own, err := serviceCgroup(string(memberships))
	if err != nil {
		return "", fmt.Errorf("--cgroup-parent own: %w", err)
	}
	group, err := cgroups.Open(filepath.Join(own, "launcher"))
	if err != nil {
		return "", err
	}
	return own, enterUnified(group)
}

// serviceCgroup returns the cgroup of a service, by /proc/self/cgroup: that of the v2 hierarchy, or of
// systemd's own v1 hierarchy (cgroups(7)).
func serviceCgroup(memberships string) (string, error) {
	for _, hierarchy := range []string{"0::", "name=systemd:"} {
		for line := range strings.Lines(memberships) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), hierarchy); ok && path != "/" {
				return strings.Trim(path, "/"), nil
			}
		}
	}
	return "", errors.New("the launcher is in no cgroup of its own: this is for a service with Delegate=yes")
}

// enterUnified moves this process into a group of the v2 hierarchy, if there is one, and makes the group.
func enterUnified(group *cgroups.Group) error {
	for _, h := range group.Hierarchies {
		if !h.V2 {
			continue
		}
		dir := group.Dir(h)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make cgroup of the launcher: %w", err)
		}
		pid := []byte(strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0); err != nil {
			return fmt.Errorf("enter cgroup of the launcher: %w", err)
		}
	}
	return nil
}

// notify reports a state of the pod to the service manager, if one has started the launcher and asks for
// it (sd_notify(3)). A service manager that does not listen does not stop the pod.
func (c *cli) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		c.warn("report to the service manager: " + err.Error())
	}
}
