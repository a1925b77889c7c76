package main

import (
	"context"
	"os"
	"os/signal"

	"kurma.io/stager/launcher/daemon"

	"golang.org/x/sys/unix"
)

// calling is a call into a pod.
type calling func(ctx context.Context, caller daemon.Caller) (int, error)

// makeCall makes a call with the launcher's own descriptors and signals, but another stdin, and returns its exit
// status. A signal is the call's: it alone ends the call. The terminal is as before then.
func (c *cli) makeCall(ctx context.Context, stdin *os.File, call calling) (int, error) {
	defer c.keepTerminal()()
	signals, stop := callSignals()
	defer stop()
	return call(context.WithoutCancel(ctx), daemon.Caller{
		Stdio:   [3]*os.File{stdin, os.Stdout, os.Stderr},
		Signals: signals,
	})
}

// statusOf is the error that ends the launcher with the exit status of a call.
func statusOf(code int, err error) error {
	if err == nil && code != 0 {
		return exitError{code}
	}
	return err
}

// callSignals returns the signals of this process that are for a call, until stop is called.
func callSignals() (passed <-chan os.Signal, stop func()) {
	received, forCall := make(chan os.Signal, 16), make(chan os.Signal, 16)
	notify(received, append(interrupts(), unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH))
	go func() {
		for sig := range received {
			if !isForCall(sig) {
				continue
			}
			select {
			case forCall <- sig:
			default: // a call that takes none has enough
			}
		}
	}()
	return forCall, func() {
		signal.Stop(received)
		close(received)
	}
}

// isForCall reports whether a signal must be passed to a call. The controlling terminal sends SIGINT,
// SIGQUIT and SIGWINCH to its whole foreground process group, the call-in included, which
// would receive them twice.
func isForCall(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
		terminal, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return true // there is none
		}
		defer terminal.Close()
		group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
		return err != nil || group != unix.Getpgrp()
	}
	return true
}
