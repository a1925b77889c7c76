package metadata

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"kurma.io/stager/plan"
)

// ErrNoLoopback is the error if no process of the network namespace could reach the
// service.
var ErrNoLoopback = errors.New("the loopback interface lo is not up")

// maxTries bounds the number of ports that the kernel is asked for. Only apps that
// declare nearly all ports make so many tries necessary.
const maxTries = 64

// listen listens on a port of 127.0.0.1 that is in no range of avoid, if it finds one
// in maxTries.
func listen(avoid []plan.PortRange) (*net.TCPListener, error) {
	if err := checkLoopback(); err != nil {
		return nil, fmt.Errorf("listen for the metadata service: %w", err)
	}
	// A connection lasts for one request: further subflows of multipath TCP and
	// probes for dead peers would be useless.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	// Unwanted ports stay open until the end, so that the kernel does not pick them
	// again.
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
		if !slices.ContainsFunc(avoid, func(r plan.PortRange) bool { return r.Has(port) }) {
			return listener, nil
		}
		unwanted = append(unwanted, listener)
	}
	// The apps declare nearly all ports: one of them lacks this one.
	last := unwanted[len(unwanted)-1].(*net.TCPListener)
	unwanted = unwanted[:len(unwanted)-1]
	return last, nil
}

// checkLoopback looks at the flags of lo: the kernel lets the service listen on an
// interface that is down, which no client could reach.
func checkLoopback() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoLoopback, err)
	}
	if lo.Flags&net.FlagUp == 0 {
		return ErrNoLoopback
	}
	return nil
}
