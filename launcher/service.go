package main

import (
	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// ownCgroup is the value of --cgroup-parent for the cgroup that the launcher is in, see cgroups.EnterService.
const ownCgroup = "own"

// notify reports a state of the pod to the service manager, if one has started the launcher and asks for
// it (sd_notify(3)). A service manager that does not listen does not stop the pod.
func (c *cli) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		c.warn("report to the service manager: " + err.Error())
	}
}
