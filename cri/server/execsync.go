package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/names"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxOutput is how much of a stream ExecSync returns, as the CRI wants it; the rest is dropped. Both together fit
// into a message.
const maxOutput = 8<<20 - 64<<10

// limitTime ends the context of a command after a time, unless that is 0.
func limitTime(ctx context.Context, limit time.Duration, command string) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	late := fmt.Errorf("command %q has not ended within %s: %w", command, limit, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, limit, late)
}

// ExecSync implements the CRI.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if len(r.GetCmd()) == 0 {
		return nil, fmt.Errorf("%w: no command", errInvalid)
	}
	pod, app, err := s.runningApp(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	ctx, cancel := limitTime(ctx, time.Duration(r.GetTimeout())*time.Second, r.GetCmd()[0])
	defer cancel()
	var out, errOut bounded
	name := records.NewID()
	code, err := carry(ctx, streams{out: &out, errOut: &errOut}, func(caller daemon.Caller) (int, error) {
		caller.Name = name
		return s.daemon.Exec(ctx, pod, app, daemon.Command{Exec: r.GetCmd()}, caller)
	})
	if err == nil {
		errOut.kept, err = messageOf(name, code, errOut.kept)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: out.kept, Stderr: errOut.kept, ExitCode: int32(code)}, nil
}

// notRun is the exit status of a command that the stager could not run, and may be that of a command, see daemon.Exec.
const notRun = 125

// messageOf returns what a command that was run under a name has written to its stderr. It is an error that the stager
// could not run the command: kubelet would take it for a probe that fails, and start the container again. The stager's
// own message begins with the name, which no command knows.
func messageOf(name string, code int, text []byte) ([]byte, error) {
	before, message, found := bytes.Cut(text, []byte(name+": "))
	switch {
	case found && code == notRun:
		return nil, fmt.Errorf("run command: %s", bytes.TrimSpace(message))
	case found:
		return slices.Concat(before, []byte(names.Run+": "), message), nil
	}
	return text, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}
