package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/container"
	"kurma.io/stager/manifest"
)

// stage is the process that the daemon launches. It reads the manifest, starts
// the supervisor in the pod's namespaces, passes the daemon's signals on and
// waits; it does nothing else, so nothing in it can go wrong while the pod runs.
// The supervisor dies with it, whatever kills it.
func stage(ctx context.Context) error {
	in := takeDescriptors(os.Environ())
	defer in.close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)

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
	return wait(supervisor, signals)
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
	// Lifeline is the read end of a pipe whose other end only the stager's
	// first process has: end of file means that it is gone.
	Lifeline int
	Ready    int
	Stdio    map[string][3]int // by app name
}

// startSupervisor runs this program again as the pod's PID 1, or in the host's
// PID namespace as a child subreaper.
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
	// The write end is left open, as a bare number that nothing closes, until
	// this process ends.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	lifeline := os.NewFile(uintptr(ends[0]), "lifeline")
	defer lifeline.Close()
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces.cloneFlags(), Pdeathsig: unix.SIGKILL}
	if namespaces.hostPID {
		cmd.SysProcAttr.Pdeathsig = 0 // the lifeline lets it take its apps along
	}
	started := make(chan error)
	go func() {
		// This thread is never given back: it is in another mount namespace,
		// and the parent-death signal follows it, not the process (prctl(2)).
		runtime.LockOSThread()
		err := enterMountNamespace()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		select {}
	}()
	return cmd, <-started
}

// wait passes signals on until the supervisor has ended, and ends as it did.
func wait(supervisor *exec.Cmd, signals <-chan os.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = supervisor.Process.Signal(s) // it may have ended already
		case err := <-ended:
			return supervisorExit(err)
		}
	}
}

// supervisorExit hands the supervisor's exit code on; it has said itself why.
func supervisorExit(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if code := exit.ExitCode(); code > 0 {
		return &callins.ExitError{Code: code}
	}
	return fmt.Errorf("stager: supervisor: %w", err)
}
