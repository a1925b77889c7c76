// Package loopback serves HTTP to this machine alone, and makes Unix sockets for root, also those of other protocols.
// Every user of the machine can connect to a loopback address: all strangers together can make a server hold some
// megabytes, and 64 descriptors, if its handlers end with the contexts of their requests.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of connections. A connection counts as a stranger's until its handler has taken it over (http.Hijacker).
const (
	MaxStrangers = 64               // of more the server closes the oldest: a client sends its request at once
	MaxHeader    = 16 << 10         // bytes of a request with its headers
	limit        = 10 * time.Second // from the connection's start to the request's end, and for the response
)

// httpSlop is what package http reads beside http.Server.MaxHeaderBytes.
const httpSlop = 4 << 10

// unixPrefix begins an address that is a path.
const unixPrefix = "unix://"

// Check returns an error for an address of Listen that others than this machine's users could connect to.
func Check(address string) error {
	if path, isPath := strings.CutPrefix(address, unixPrefix); isPath && strings.HasPrefix(path, "/") {
		return nil
	}
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsLoopback() {
		return nil
	}
	return errors.New("want 127.0.0.1:PORT, [::1]:PORT or unix:///PATH")
}

// Listen listens at an address that Check accepts.
func Listen(address string) (net.Listener, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	if path, isPath := strings.CutPrefix(address, unixPrefix); isPath {
		return Socket(path)
	}
	return net.Listen("tcp", address)
}

// Socket makes a Unix socket of mode 0600 in place of one that a killed server has left. It makes the folder, with mode
// 0700, if it is missing.
func Socket(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	connection, err := net.Dial("unix", path)
	if err == nil {
		connection.Close()
		return nil, fmt.Errorf("make socket: another server serves %s", path)
	}
	// Any other error may be that of a live server, which has a full backlog or a socket of another type.
	info, statErr := os.Lstat(path)
	if errors.Is(err, syscall.ECONNREFUSED) && statErr == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path) // Listen reports what is wrong with it
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	return listener, os.Chmod(path, 0o600)
}

// Server returns the server of a handler with the limits, and the listener for its method Serve. The context of a
// request ends when its connection is closed, also of one that the handler has taken over.
func Server(listener net.Listener, handler http.Handler) (*http.Server, net.Listener) {
	clients := &clients{Listener: listener}
	return &http.Server{
		Handler: handler, ConnContext: connectionContext, ConnState: clients.follow,
		// Package http removes its deadlines from a connection that a handler takes over.
		ReadTimeout: limit, WriteTimeout: limit, MaxHeaderBytes: MaxHeader - httpSlop,
	}, clients
}

// clients is a listener for connectionContext. It closes the oldest of more than MaxStrangers connections.
type clients struct {
	net.Listener

	mu        sync.Mutex
	strangers []*clientConnection // the oldest first; guarded by mu
}

// Accept implements net.Listener.
func (c *clients) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	stranger := &clientConnection{Conn: connection}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strangers = append(c.strangers, stranger)
	if len(c.strangers) > MaxStrangers {
		_ = c.strangers[0].Close() // package http may not read it while a handler runs, whose context this ends
		c.strangers = slices.Delete(c.strangers, 0, 1)
	}
	return stranger, nil
}

// follow is http.Server's ConnState.
func (c *clients) follow(connection net.Conn, state http.ConnState) {
	if state != http.StateHijacked && state != http.StateClosed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strangers = slices.DeleteFunc(c.strangers, func(s *clientConnection) bool { return net.Conn(s) == connection })
}

// clientConnection ends the context of its requests when it is closed from either side. Package http does not: it no
// longer knows a connection that a handler has taken over.
type clientConnection struct {
	net.Conn
	end context.CancelFunc
}

// connectionContext is http.Server's ConnContext.
func connectionContext(ctx context.Context, c net.Conn) context.Context {
	connection, ok := c.(*clientConnection)
	if ok {
		ctx, connection.end = context.WithCancel(ctx)
	}
	return ctx
}

// Read implements net.Conn. Of the protocols of streams somebody always reads.
func (c *clientConnection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // by which package http ends its own reading
		c.end()
	}
	return n, err
}

// Close implements net.Conn.
func (c *clientConnection) Close() error {
	c.end()
	return c.Conn.Close()
}
