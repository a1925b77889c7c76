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

// ListenEnv returns an app's environment with the variables that sd_listen_fds(3) asks for, but
// LISTEN_PID, which is known when the process has been made (spec.Spec.Files).
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

// OpenSockets makes the sockets in the pod's network namespace, on all
// addresses and of both IP versions where there is IPv6. The caller closes them,
// after an error as well. They are made once: a client that connects while the
// app restarts waits for it.
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
