package server

import (
	"fmt"
	"net"

	"kurma.io/stager/internal/loopback"

	"github.com/coreos/go-systemd/v22/activation"
)

// listen returns systemd's socket if it has passed one to this process (sd_listen_fds(3)), otherwise a new one at path.
// The server calls listen first: no child process may inherit the socket, and the leftovers of a killed server may be
// removed only while no other server runs.
func listen(path string) (net.Listener, error) {
	passed, err := activation.Listeners()
	switch {
	case err != nil:
		return nil, fmt.Errorf("take socket of systemd: %w", err)
	case len(passed) == 1 && passed[0] != nil && passed[0].Addr().Network() == "unix":
		return passed[0], nil
	case len(passed) > 0:
		return nil, fmt.Errorf("take socket of systemd: %d sockets are passed, want one Unix socket (ListenStream=)",
			len(passed))
	}
	return loopback.Socket(path)
}
