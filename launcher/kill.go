package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// killCommand is `kill`.
func killCommand(c *cli) *cobra.Command {
	sig := unix.SIGKILL
	cmd := &cobra.Command{
		Use:   "kill POD [APP]",
		Short: "send a signal to the main processes of a pod's apps",
		Long: `kill sends a signal, SIGKILL unless --signal names another, to the main process of an app, or of each app
that runs. The pod goes on as its policies say; stop stops it.`,
		Args:              wants(1, 2, "POD [APP]"),
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.kill(cmd.Context(), args, sig) },
	}
	cmd.Flags().FuncP("signal", "s", "the `SIGNAL`, a name such as TERM or a number", func(text string) (err error) {
		sig, err = parseSignal(text)
		return err
	})
	return cmd
}

// parseSignal reads a signal's name, with or without SIG, or number.
func parseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, errors.New("want a signal such as TERM, or its number")
}

func (c *cli) kill(ctx context.Context, args []string, sig syscall.Signal) error {
	pod, rest, err := c.findPod("kill", args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		if _, err := app(pod, rest); err != nil {
			return err
		}
	}
	apps, err := c.runningApps(ctx, pod)
	if err != nil {
		return err
	}
	sent := false
	for name, state := range apps {
		if state.PID == 0 || len(rest) > 0 && name != rest[0] {
			continue
		}
		if err := c.signalApp(ctx, pod, name, state.PID, sig); err != nil {
			return err
		}
		sent = true
	}
	if !sent {
		return fmt.Errorf("pod %q: nothing runs that could be sent %s; launcher status %[1]s shows its apps", pod.Plan.Name, unix.SignalName(sig))
	}
	return nil
}

// runningApps returns the states of the apps of a pod that must be alive.
func (c *cli) runningApps(ctx context.Context, pod *pods.Pod) (map[string]appStatus, error) {
	data, err := c.statusDocument(ctx, pod)
	if err != nil {
		return nil, err
	}
	if pod.Ended() {
		return nil, fmt.Errorf("pod %q has ended; launcher logs %[1]s shows what it has written", pod.Plan.Name)
	}
	return readStatus(pod, data)
}

// signalApp signals an app's main process. The number may be another process's by the time that it
// is opened, so the stager is asked again then.
func (c *cli) signalApp(ctx context.Context, pod *pods.Pod, name string, pid int, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("app %q has just ended", name)
	}
	defer func() { _ = unix.Close(fd) }()
	apps, err := c.runningApps(ctx, pod)
	if err != nil {
		return err
	}
	if apps[name].PID != pid {
		return fmt.Errorf("app %q has just ended", name)
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("send %s to app %q: %w", unix.SignalName(sig), name, err)
	}
	return nil
}
