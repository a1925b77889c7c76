package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming"
)

// Limits of connections to the address of streams, to which every user of the machine can connect. A connection counts
// as a stranger's until its request has shown a token of Exec, Attach or PortForward, which only a user of the server's
// socket has. All strangers together can make the server hold some megabytes, and 64 descriptors.
const (
	maxStrangers   = 64               // of more the server closes the oldest: a client sends its request at once
	maxHeader      = 16 << 10         // bytes of a request with its headers
	strangersLimit = 10 * time.Second // from the connection's start to the request's end, and for the response
)

// httpSlop is what package http reads beside http.Server.MaxHeaderBytes.
const httpSlop = 4 << 10

// serveStreams serves exec, attach and port-forward until stop is called.
func (s *Server) serveStreams() (stop func(), err error) {
	listener, err := net.Listen("tcp", s.config.StreamAddress)
	if err != nil {
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	clients := &clients{Listener: listener}
	server, err := s.streamServer(clients)
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	go func() { _ = server.Serve(clients) }()
	return func() { _ = server.Close() }, nil
}

// streamServer makes the server of those clients, and s.streams.
func (s *Server) streamServer(c *clients) (_ *http.Server, err error) {
	config := streaming.DefaultConfig
	// The token of a request is short, is good once, and ends after a minute. The text before it cannot be guessed.
	config.BaseURL = &url.URL{Scheme: "http", Host: c.Addr().String(), Path: "/" + rand.Text() + "/"}
	if s.streams, err = streaming.NewServer(config, streamRuntime{s}); err != nil {
		return nil, err
	}
	return &http.Server{
		Handler: s.streams, ConnContext: connectionContext, ConnState: c.follow,
		// Package http removes its deadlines from a connection that a stream takes over.
		ReadTimeout: strangersLimit, WriteTimeout: strangersLimit, MaxHeaderBytes: maxHeader - httpSlop,
	}, nil
}

// clients is a listener for connectionContext. It closes the oldest of more than maxStrangers connections.
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
	if len(c.strangers) > maxStrangers {
		_ = c.strangers[0].Conn.Close() // package http, which reads it, then ends it
		c.strangers = slices.Delete(c.strangers, 0, 1)
	}
	return stranger, nil
}

// follow is http.Server's ConnState. A stream has shown a token when it takes its connection over.
func (c *clients) follow(connection net.Conn, state http.ConnState) {
	if state != http.StateHijacked && state != http.StateClosed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strangers = slices.DeleteFunc(c.strangers, func(s *clientConnection) bool { return net.Conn(s) == connection })
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
