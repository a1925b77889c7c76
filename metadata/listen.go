package metadata

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrNoLoopback is the error of a network namespace in which no process could
// reach the service.
var ErrNoLoopback = errors.New("the loopback interface lo is not up")

// maxTries bounds the ports that are asked for, of which the kernel picks free
// ones. Only apps that want nearly all of them take so many.
const maxTries = 64

// listen takes a port of 127.0.0.1 that is in no range of avoid, where such a one
// can be found.
func listen(avoid []PortRange) (*net.TCPListener, error) {
	if err := checkLoopback(); err != nil {
		return nil, fmt.Errorf("listen for the metadata service: %w", err)
	}
	// A connection lasts for one request, so that the further subflows of
	// multipath TCP and probes for dead peers would be of no use.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	// What is not wanted is kept until the end, so that it is not picked again.
	var unwanted []net.Listener
	defer func() {
		for _, l := range unwanted {
			l.Close()
		}
	}()
	for range maxTries {
		l, err := config.Listen(context.Background(), "tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("listen for the metadata service: %w", err)
		}
		listener := l.(*net.TCPListener)
		port := uint(listener.Addr().(*net.TCPAddr).Port)
		if !slices.ContainsFunc(avoid, func(r PortRange) bool { return r.has(port) }) {
			return listener, nil
		}
		unwanted = append(unwanted, listener)
	}
	// The apps want nearly all: one of them has to do without this port.
	last := unwanted[len(unwanted)-1].(*net.TCPListener)
	unwanted = unwanted[:len(unwanted)-1]
	return last, nil
}

// checkLoopback looks at the flags of lo, for an address may be taken on an
// interface that is down, and nobody would get there (netdevice(7)).
func checkLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at interface lo: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err == nil {
		err = unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoLoopback, err)
	}
	if request.Uint16()&unix.IFF_UP == 0 {
		return ErrNoLoopback
	}
	return nil
}
