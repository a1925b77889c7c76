package activation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/plan"
)

// ListenEnv returns an app's environment with the variables of sd_listen_fds(3), except
// LISTEN_PID, which is known only when the process has been made (spec.Spec.Files).
func ListenEnv(env []string, sockets []plan.Socket) []string {
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

// withoutVariables returns a copy of an environment without the named variables.
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

// OpenSockets opens the sockets in the pod's network namespace, on all addresses, for IPv4 and
// if possible also IPv6. The caller closes them, also after an error. The supervisor opens the
// sockets once for all runs of the app: a client that connects while the app restarts waits
// for the app.
func OpenSockets(sockets []plan.Socket) ([]*os.File, error) {
	var files []*os.File
	for _, s := range sockets {
		f, err := open(s)
		if err != nil {
			return files, fmt.Errorf("open socket of port %q: %w", s.Name, err)
		}
		files = append(files, f)
	}
	return files, nil
}

func open(s plan.Socket) (*os.File, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // plain TCP, like systemd
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
