package podplan

import (
	"fmt"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
)

// portWarnings warns of the pod's ports that are not on the host under the number
// that the pod asks for. No network of the pod takes its ports, so one is on the host only if
// the pod's network is the host's, under the number on which the app listens.
func portWarnings(m *manifest.Manifest, plan pods.Plan) []string {
	apps := appPorts(m)
	var all []string
	for _, port := range m.Pod.Ports {
		to, _ := leadsTo(port, apps) // connect has checked it
		switch {
		case !plan.HostNetwork:
			all = append(all, fmt.Sprintf("pod %q: port %q: host port %d is not forwarded; use --net host (the app listens "+
				"on %d)", plan.Name, port.Name, port.HostPort, to.Port))
		case to.Port != port.HostPort:
			all = append(all, fmt.Sprintf("pod %q: port %q: host port %d is not forwarded; the app listens on %d", plan.Name,
				port.Name, port.HostPort, to.Port))
		}
	}
	return all
}
