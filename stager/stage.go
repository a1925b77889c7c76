package main

// #include "waiter.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/manifest"
)

// stage is the process between the one that the daemon launches, waiter.c, and
// the supervisor. It reads the manifest, starts the supervisor in the pod's
// namespaces as the waiter's child, tells the waiter, and is done.
func stage(context.Context) error {
	in := takeDescriptors(os.Environ())
	defer in.close()
	m, err := readManifest(manifestPath)
	if err != nil {
		return fmt.Errorf("stager: %w", err)
	}
	namespaces, err := podNamespaces(m)
	if err != nil {
		return fmt.Errorf("stager: %w", err)
	}
	if err := container.EnterLeaf(); err != nil {
		return fmt.Errorf("stager: %w", err)
	}
	supervisor, err := startSupervisor(&in, namespaces)
	if err != nil {
		return fmt.Errorf("stager: start supervisor: %w", err)
	}
	in.close()
	if namespaces.hostPID {
		return guard(supervisor)
	}
	return report(supervisor.Process.Pid, supervisor.Process.Pid)
}

// report tells the waiter whom to signal and whom to wait for.
func report(signalled, awaited int) error {
	pids := C.struct_waiter_pids{signalled: C.int32_t(signalled), awaited: C.int32_t(awaited)}
	f := os.NewFile(uintptr(C.waiter_report), "report")
	_, err := f.Write(C.GoBytes(unsafe.Pointer(&pids), C.int(unsafe.Sizeof(pids))))
	return errors.Join(err, f.Close())
}

// guard stays with a supervisor that is no PID 1: what it leaves when it is
// killed does not die with a PID namespace.
func guard(supervisor *exec.Cmd) error {
	if err := report(supervisor.Process.Pid, os.Getpid()); err != nil {
		return fmt.Errorf("stager: %w", err)
	}
	err := supervisor.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if code := exit.ExitCode(); code > 0 {
		return &callins.ExitError{Code: code}
	}
	return errors.Join(fmt.Errorf("stager: supervisor: %w", err), container.KillPod(appsCgroup))
}

// readManifest reads and checks the manifest; nothing has been touched when it
// fails.
func readManifest(path string) (*manifest.Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	return manifest.Read(f)
}

// inheritance tells the supervisor which of its descriptors is what. 0 stands for none.
type inheritance struct {
	// Lifeline is the read end of a pipe whose other end only the waiter has:
	// end of file means that it is gone.
	Lifeline int
	Ready    int
	Stdio    map[string][3]int // by app name
}

// startSupervisor runs this program again as the pod's PID 1 and the waiter's
// child, or, in the host's PID namespace, as this process's.
func startSupervisor(in *inherited, namespaces namespaces) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	pass := func(f *os.File) int {
		if f == nil {
			return 0
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return 2 + len(cmd.ExtraFiles)
	}
	lifeline := os.NewFile(uintptr(C.waiter_lifeline), "lifeline")
	list := inheritance{Lifeline: pass(lifeline), Ready: pass(in.ready), Stdio: make(map[string][3]int)}
	for app, files := range in.stdio {
		list.Stdio[app] = [3]int{pass(files[0]), pass(files[1]), pass(files[2])}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	cmd.Env = []string{inheritanceVariable + "=" + string(text)}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// What is in the host's PID namespace takes its apps along by the lifeline.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces.cloneFlags()}
	if !namespaces.hostPID {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_PARENT
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	return cmd, startInMountNamespace(cmd)
}

// startInMountNamespace starts cmd from a thread in a mount namespace of its
// own, which is never given back.
func startInMountNamespace(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := enterMountNamespace()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		select {}
	}()
	return <-started
}
