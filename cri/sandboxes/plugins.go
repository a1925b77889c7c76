package sandboxes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
)

// plugins executes CNI's plugins. Unlike with libcni's own way, the kernel kills a plugin with the server, and a plugin
// that is being replaced is not tried again. An ADD that outlives a server that was killed could be later than the next
// one's DEL, and its address would stay taken.
type plugins struct {
	invoke.RawExec
	version.PluginDecoder
	added func(result []byte) error // gets the output of each ADD that has worked, unless it is nil
}

// childTime is how long a child of a plugin that has ended may keep the plugin's output open.
const childTime = time.Second

// endedSince returns a channel that is closed that long after the end of ctx.
func endedSince(ctx context.Context, delay time.Duration) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(delay, func() { close(late) }) })
	return late
}

// ExecPlugin implements invoke.Exec.
func (p *plugins) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	output, err := execute(ctx, path, stdin, environ)
	if err == nil && p.added != nil && slices.Contains(environ, "CNI_COMMAND=ADD") {
		err = p.added(output)
	}
	return output, err
}

// execute returns a plugin's output. A plugin that succeeds may leave a child that has its output.
func execute(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &out, &errOut
	cmd.WaitDelay = childTime
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	done := make(chan error, 1)
	go func() { done <- thread.New(cmd.Run) }() // the signal is about the thread, which lives as long as the plugin
	var err error
	select {
	case err = <-done:
	case <-endedSince(ctx, 2*childTime):
		return nil, fmt.Errorf("plugin %s: %w: it survives SIGKILL", path, context.Cause(ctx))
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return out.Bytes(), nil
	}
	var said types.Error
	if json.Unmarshal(out.Bytes(), &said) == nil {
		return nil, &said
	}
	return nil, fmt.Errorf("plugin %s: %w: %q", path, err, errOut.String())
}
