package tests

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/hostile"
)

// probes returns what this test program can do as a program of an app, see testProgram.
func probes() map[string]harness.Probe {
	all := map[string]harness.Probe{
		"session-keyring": probeSessionKeyring,
		"open-terminal":   probeTerminal,
		"ipc-one":         probeIPCOne,
		"ipc-other":       probeIPCOther,
		"metadata-load":   probeMetadataLoad,
		"limit-pid-1":     probeLimitPID1,
		"signals":         probeSignals,
		"proc":            probeProc,
		"reopen":          probeReopen,
	}
	for name, program := range hostile.Programs() {
		all[name] = func(io.Writer) error { return program() }
	}
	return all
}

// probeReopen does what it can to its streams, and says nothing there. It fails if it could do nothing.
func probeReopen(io.Writer) error {
	if hostile.Reopen() == 0 {
		return errors.New("no call on the streams has succeeded")
	}
	return nil
}

// probeLimitPID1 tries to set the limits of the pod's supervisor.
func probeLimitPID1(out io.Writer) error {
	for _, resource := range []int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_NOFILE} {
		_, err := fmt.Fprintln(out, unix.Prlimit(1, resource, &unix.Rlimit{}, nil))
		if err != nil {
			return err
		}
	}
	return nil
}

func probeSessionKeyring(out io.Writer) error {
	id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	_, err = fmt.Fprintln(out, id, err)
	return err
}
