package podplan

import (
	"fmt"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema/types"
)

// portWarnings says of each port that cannot be reached from the host why it cannot.
func portWarnings(m *manifest.Manifest, plan pods.Plan) []string {
	var all []string
	for _, port := range unreachable(m, plan.HostNetwork) {
		all = append(all, fmt.Sprintf("pod %q: port %q is not reachable from the host: nothing here forwards host port %d to it", plan.Name, port.Name, port.HostPort))
	}
	return all
}

// unreachable lists the pod's ports that are not on the host as it asks for. Nothing
// here forwards them, so a port is reachable only if the pod's network is the host's
// and the numbers are the same.
func unreachable(m *manifest.Manifest, hostNetwork bool) []types.ExposedPort {
	numbers := make(map[types.ACName]uint)
	for _, app := range m.Apps() {
		for _, port := range app.App.Ports {
			numbers[port.Name] = port.Port
		}
	}
	var out []types.ExposedPort
	for _, port := range m.Pod.Ports {
		number := numbers[port.Name]
		if port.PodPort != nil {
			number = port.PodPort.Port
		}
		if !hostNetwork || number != port.HostPort {
			out = append(out, port)
		}
	}
	return out
}
