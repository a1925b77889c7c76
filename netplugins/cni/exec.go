package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

// lockFile is a file of sysfs, which all processes of a network namespace share, in whatever container they are: so a
// lock on it is the namespace's.
const lockFile = "/sys/class/net"

// executor implements invoke.Exec: a plugin runs in a process group of its own, its stderr is
// apart, and plugins that change iptables or nftables run one after the other, because their changes
// of shared chains get in each other's way.
type executor struct {
	version.PluginDecoder
	last []byte // stdout of the last ADD that has worked
}

// FindInPath implements invoke.Exec.
func (e *executor) FindInPath(name string, paths []string) (string, error) {
	return invoke.FindInPath(name, paths)
}

// ExecPlugin implements invoke.Exec.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A plugin's own children, its IPAM plugin above all, end with it.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	if changesTables(path, environ) {
		lock, err := lockTables(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock(lock, cmd)
		cmd.ExtraFiles = []*os.File{lock} // a plugin that is killed holds it until the last of its processes has ended
	}
	// A plugin that succeeds may leave a child that has its output.
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, pluginError(ctx, filepath.Base(path), err, stdout.Bytes(), stderr.Bytes())
	}
	if slices.Contains(environ, "CNI_COMMAND=ADD") {
		e.last = stdout.Bytes()
	}
	return stdout.Bytes(), nil
}

// changesTables reports whether a plugin changes chains that it shares with others.
func changesTables(path string, environ []string) bool {
	return slices.Contains([]string{"bridge", "ptp", "portmap", "firewall"}, filepath.Base(path)) &&
		(slices.Contains(environ, "CNI_COMMAND=ADD") || slices.Contains(environ, "CNI_COMMAND=DEL"))
}

// lockTables takes the lock of the machine's tables.
func lockTables(ctx context.Context) (*os.File, error) {
	file, err := lock(ctx, lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock tables: %w", err)
	}
	return file, nil
}

// unlock releases the lock that a plugin shares with its processes. One that ends by itself has waited for those that
// change the tables: a child that it leaves behind, such as a daemon, does not keep the lock for its life.
func unlock(lock *os.File, plugin *exec.Cmd) {
	if plugin.ProcessState != nil && plugin.ProcessState.Exited() {
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) // in all processes; it fails only without a lock
	}
	_ = lock.Close()
}

// lock takes the lock of a file, which is held until the file is closed. The calls that wait get it in their order:
// of many, each has its turn before its time is up. None goes on without it: the plugin that holds it ends by its own
// limit.
func lock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, file.Close())
		}
		return file, nil
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, file.Close()) }() // the caller has gone
		return nil, fmt.Errorf("wait for another pod's plugin: %w", context.Cause(ctx))
	}
}

// pluginError returns a plugin's own words: the error that it has printed, else its stderr.
func pluginError(ctx context.Context, name string, err error, stdout, stderr []byte) error {
	var printed types.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("plugin %s: %w", name, context.Cause(ctx))
	case json.Unmarshal(stdout, &printed) == nil && printed.Msg != "":
		return fmt.Errorf("plugin %s: %w", name, &printed)
	}
	words := strings.TrimSpace(string(stderr))
	if words == "" {
		words = strings.TrimSpace(string(stdout))
	}
	if words == "" {
		return fmt.Errorf("plugin %s: %w", name, err)
	}
	return fmt.Errorf("plugin %s: %w: %s", name, err, words)
}
