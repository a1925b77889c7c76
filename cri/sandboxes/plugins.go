package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// killTime is how long a plugin that was killed may take to end.
const killTime = 2 * time.Second

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

// execute returns a plugin's output. Its files are in memory: a child of the plugin may have them open, and no reader
// has to be in time.
func execute(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	in, err := inMemory(stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := inMemory(nil)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errOut, err := inMemory(nil)
	if err != nil {
		return nil, err
	}
	defer errOut.Close()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, in, out, errOut
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	done := make(chan error, 1)
	go func() { done <- thread.New(cmd.Run) }() // the signal is about the thread, which lives as long as the plugin
	select {
	case err = <-done:
	case <-endedSince(ctx, killTime):
		return nil, fmt.Errorf("plugin %s: %w: it survives SIGKILL", path, context.Cause(ctx))
	}
	output, readErr := written(out)
	if err == nil {
		return output, readErr
	}
	var said types.Error
	if json.Unmarshal(output, &said) == nil {
		return nil, &said
	}
	words, _ := written(errOut)
	return nil, fmt.Errorf("plugin %s: %w: %q", path, err, words)
}

// inMemory returns a file in memory with that content, at its begin.
func inMemory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("plugin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "plugin")
	if _, err := file.WriteAt(content, 0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// maxOutput is how much of a plugin's output is read, in bytes.
const maxOutput = 1 << 20

// written returns what a plugin has written to a file.
func written(file *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(file, 0, maxOutput))
}
