package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to the main process of an app, or for "" of each app that runs. That none runs is an error. An
// app that cannot be signalled prevents no other.
func (d *Daemon) Signal(ctx context.Context, pod *pods.Pod, app string, sig syscall.Signal) error {
	if app != "" {
		if _, err := FindApp(pod, app); err != nil {
			return err
		}
	}
	apps, err := d.runningApps(ctx, pod)
	if err != nil {
		return err
	}
	sent := false
	var errs []error
	for name, state := range apps {
		if state.PID == 0 || app != "" && name != app {
			continue
		}
		err := d.signalApp(ctx, pod, name, state.PID, sig)
		sent = sent || err == nil
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return fmt.Errorf("pod %q has no running process for %s; launcher status %[1]s shows the apps", pod.Plan.Name,
			unix.SignalName(sig))
	}
	if sent { // the signal's app may have ended the pod, with the others
		errs = slices.DeleteFunc(errs, hasEnded)
	}
	return errors.Join(errs...)
}

// errAppEnded says that an app has ended, in a pod that may run on.
var errAppEnded = errors.New("has ended")

func hasEnded(err error) bool {
	return errors.Is(err, errAppEnded) || errors.Is(err, pods.ErrEnded) || errors.Is(err, pods.ErrNotFound)
}

// runningApps returns the states of the apps of a pod that must be alive.
func (d *Daemon) runningApps(ctx context.Context, pod *pods.Pod) (map[string]pods.AppStatus, error) {
	status, err := d.Status(ctx, pod)
	if err != nil {
		return nil, err
	}
	if pod.Ended() {
		return nil, fmt.Errorf("pod %q %w", pod.Plan.Name, pods.ErrEnded)
	}
	return status.Apps, nil
}

// signalApp signals an app's main process. The number may be another process's by the time that it
// is opened, so the stager is asked again then.
func (d *Daemon) signalApp(ctx context.Context, pod *pods.Pod, name string, pid int, sig syscall.Signal) error {
	ended := fmt.Errorf("app %q %w", name, errAppEnded)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return ended
	}
	if err != nil {
		return fmt.Errorf("signal app %q: %w", name, os.NewSyscallError("pidfd_open", err))
	}
	defer func() { _ = unix.Close(fd) }()
	apps, err := d.runningApps(ctx, pod)
	if err != nil {
		return err
	}
	if apps[name].PID != pid {
		return ended
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return ended
	}
	if err != nil {
		return fmt.Errorf("send %s to app %q: %w", unix.SignalName(sig), name, err)
	}
	return nil
}
