package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// Socket is one that an app finds open when it starts (appc, aci.md, ports,
// socketActivated): its port's name, "tcp" or "udp", and a number.
type Socket struct {
	Name    string
	Network string
	Port    uint
}

// socketsOf decides an app's sockets, one for each number of a range, in the
// order of its ports. What the pod says of a port by its name goes before
// what the image says (pods.md, ports), but that the program wants a socket
// stays true. An error names the port.
func socketsOf(app manifest.App, exposed []types.ExposedPort) ([]Socket, error) {
	var out []Socket
	for _, port := range app.App.Ports {
		for _, e := range exposed {
			if e.PodPort != nil && e.Name == port.Name {
				port = overridePort(port, *e.PodPort)
			}
		}
		if !port.SocketActivated {
			continue
		}
		network := strings.ToLower(port.Protocol)
		if network != "tcp" && network != "udp" {
			return nil, fmt.Errorf("port %q: protocol %q: a socket can be made for tcp and udp", port.Name, port.Protocol)
		}
		for i := range max(port.Count, 1) {
			out = append(out, Socket{Name: port.Name.String(), Network: network, Port: port.Port + i})
		}
	}
	return out, nil
}

// checkPortNames looks for names that several ports have: they must be unique in a
// pod (appc, pods.md, ports). Two in one image, or one that the pod's own ports name, are
// an error, for nobody knows which is meant; else it is a warning.
func checkPortNames(apps []manifest.App, exposed []types.ExposedPort) (warnings []string, err error) {
	owners := map[types.ACName]string{}
	for _, app := range apps {
		for _, port := range app.App.Ports {
			owner, taken := owners[port.Name]
			named := slices.ContainsFunc(exposed, func(e types.ExposedPort) bool { return e.Name == port.Name })
			switch {
			case !taken:
				owners[port.Name] = app.Name
			case owner == app.Name:
				return nil, fmt.Errorf("app %q: ports: %q: two ports have that name", app.Name, port.Name)
			case named:
				return nil, fmt.Errorf("app %q: ports: %q: app %q has a port of that name, and the pod's ports do not say which they mean",
					app.Name, port.Name, owner)
			default:
				warnings = append(warnings, fmt.Sprintf("apps %q and %q both have a port named %q; the names must be unique in a pod",
					owner, app.Name, port.Name))
			}
		}
	}
	return warnings, nil
}

func overridePort(image, pod types.Port) types.Port {
	image.Port, image.Count = pod.Port, pod.Count
	if pod.Protocol != "" {
		image.Protocol = pod.Protocol
	}
	image.SocketActivated = image.SocketActivated || pod.SocketActivated
	return image
}
