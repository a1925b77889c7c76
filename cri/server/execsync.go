package server

import (
	"context"
	"fmt"
	"time"

	"kurma.io/stager/launcher/daemon"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxOutput is how much of a stream ExecSync returns, as the CRI wants it; the rest is dropped. Both together fit
// into a message.
const maxOutput = 8<<20 - 64<<10

// ExecSync implements the CRI.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if len(r.GetCmd()) == 0 {
		return nil, fmt.Errorf("%w: no command", errInvalid)
	}
	pod, app, err := s.runningApp(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if limit := time.Duration(r.GetTimeout()) * time.Second; limit > 0 {
		late := fmt.Errorf("command %q has not ended within %s: %w", r.GetCmd()[0], limit, context.DeadlineExceeded)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	var out, errOut bounded
	command := daemon.Command{Exec: r.GetCmd()}
	code, err := s.command(ctx, pod, app, command, streams{out: &out, errOut: &errOut})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out.kept, Stderr: errOut.kept, ExitCode: int32(code)}, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}
