package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"k8s.io/cri-streaming/pkg/streaming"
)

// serveStreams serves exec, attach and port-forward until stop is called.
func (s *Server) serveStreams() (stop func(), err error) {
	listener, err := net.Listen("tcp", s.config.StreamAddress)
	if err != nil {
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	config := streaming.DefaultConfig
	config.Addr = listener.Addr().String()
	if s.streams, err = streaming.NewServer(config, streamRuntime{s}); err != nil {
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	//nolint:gosec // streams last as long as their commands
	server := &http.Server{Handler: s.streams, ConnContext: connectionContext}
	go func() { _ = server.Serve(clients{listener}) }()
	return func() { _ = server.Close() }, nil
}

// clients is a listener for connectionContext.
type clients struct{ net.Listener }

// Accept implements net.Listener.
func (c clients) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConnection{Conn: connection}, nil
}

// clientConnection ends the context of its requests when it is closed from either side. Package http does not: it no
// longer knows a connection that a request has taken over, as all streams do.
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

// Read implements net.Conn. Of the streams' protocols somebody always reads.
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
