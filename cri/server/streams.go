package server

import (
	"context"
	"errors"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// streamRuntime is the server for package streaming.
type streamRuntime struct{ *Server }

var errLater = errors.New("not built yet")

func (streamRuntime) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errLater
}

func (streamRuntime) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errLater
}

func (streamRuntime) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errLater
}
