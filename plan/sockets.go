package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// Socket is a socket that the stager opens and an app inherits (appc, aci.md, ports,
// socketActivated).
type Socket struct {
	Name    string // of the port
	Network string // "tcp" or "udp"
	Port    uint
}

const maxPort = 65535

// socketsOf decides an app's sockets, one for each number of a range, in the
// order of its ports. The pod's settings for a port of that name override the image's
// (pods.md, ports), but the pod cannot switch socketActivated off. An error names the port.
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
			return nil, fmt.Errorf("port %q: protocol %q: socketActivated needs tcp or udp", port.Name, port.Protocol)
		}
		count := max(port.Count, 1)
		if port.Port > maxPort || count > maxPort+1-port.Port { // which appc's sum of both does not see
			return nil, fmt.Errorf("port %q: %d ports from %d on: the last port is %d", port.Name, count, port.Port, maxPort)
		}
		if uint(len(out))+count > maxPort {
			return nil, fmt.Errorf("port %q: more than %d sockets", port.Name, maxPort)
		}
		for i := range count {
			out = append(out, Socket{Name: port.Name.String(), Network: network, Port: port.Port + i})
		}
	}
	return out, nil
}

// checkPortNames looks for ports with the same name: names must be unique in a pod (appc,
// pods.md, ports). Two ports in one image, or ports that the pod's own list names, are an
// error, because the name is ambiguous; others are a warning.
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
				return nil, fmt.Errorf("app %q: ports: %q: app %q also has a port of that name, "+
					"so the pod's port of that name is ambiguous", app.Name, port.Name, owner)
			default:
				warnings = append(warnings, fmt.Sprintf("apps %q and %q both have a port named %q; "+
					"the names must be unique in a pod", owner, app.Name, port.Name))
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
