package server

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"kurma.io/stager/internal/loopback"

	"k8s.io/cri-streaming/pkg/streaming"
)

// serveStreams serves exec, attach and port-forward until stop is called.
func (s *Server) serveStreams() (stop func(), err error) {
	listener, err := net.Listen("tcp", s.config.StreamAddress)
	if err != nil {
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	server, clients, err := s.streamServer(listener)
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("serve streams: %w", err)
	}
	go func() { _ = server.Serve(clients) }()
	return func() { _ = server.Close() }, nil
}

// streamServer makes the server of a listener, and s.streams. Until a request has shown a token of Exec, Attach or
// PortForward, which only a user of the server's socket has, its connection counts as a stranger's.
func (s *Server) streamServer(listener net.Listener) (*http.Server, net.Listener, error) {
	config := streaming.DefaultConfig
	// The token of a request is short, is good once, and ends after a minute. The text before it cannot be guessed.
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/" + rand.Text() + "/"}
	var err error
	if s.streams, err = streaming.NewServer(config, streamRuntime{s}); err != nil {
		return nil, nil, err
	}
	server, clients := loopback.Server(listener, s.streams)
	return server, clients, nil
}
