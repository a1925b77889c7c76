package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

// socket is one that an app finds open when it starts (appc, aci.md, ports,
// socketActivated): its port's name, "tcp" or "udp", and a number.
type socket struct {
	Name    string
	Network string
	Port    uint
}

// socketsOf decides an app's sockets, one for each number of a range, in the
// order of its ports. What the pod says of a port by its name goes before
// what the image says (pods.md, ports), but that the program wants a socket
// stays true. An error names the port.
func socketsOf(app manifest.App, exposed []types.ExposedPort) ([]socket, error) {
	var out []socket
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
			out = append(out, socket{Name: port.Name.String(), Network: network, Port: port.Port + i})
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

// listenEnv adds to an app's environment what sd_listen_fds(3) asks for but
// LISTEN_PID, which nobody knows yet.
func listenEnv(env []string, sockets []socket) []string {
	if len(sockets) == 0 {
		return env
	}
	names := make([]string, len(sockets))
	for i, s := range sockets {
		names[i] = s.Name
	}
	env = withoutVariables(env, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
	return append(env, "LISTEN_FDS="+strconv.Itoa(len(sockets)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
}

// withoutVariables copies an environment without the named variables.
func withoutVariables(env []string, names ...string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains(names, name) {
			out = append(out, e)
		}
	}
	return out
}

// openSockets makes the sockets in the pod's network namespace, on all
// addresses and of both IP versions where there is IPv6. The caller closes them,
// after an error as well. They are made once: a client that connects while the
// app restarts waits for it.
func openSockets(sockets []socket) ([]*os.File, error) {
	var files []*os.File
	for _, s := range sockets {
		f, err := s.open()
		if err != nil {
			return files, fmt.Errorf("open socket of port %q: %w", s.Name, err)
		}
		files = append(files, f)
	}
	return files, nil
}

func (s socket) open() (*os.File, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // plain TCP, as systemd gives
	address := ":" + strconv.FormatUint(uint64(s.Port), 10)
	if s.Network == "udp" {
		conn, err := config.ListenPacket(context.Background(), "udp", address)
		if err != nil {
			return nil, err
		}
		f, err := conn.(*net.UDPConn).File()
		return f, errors.Join(err, conn.Close())
	}
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	f, err := listener.(*net.TCPListener).File()
	return f, errors.Join(err, listener.Close())
}
