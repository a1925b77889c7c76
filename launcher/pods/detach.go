package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"kurma.io/stager/launcher/cgroups"
)

// Descriptors of a detached monitor, which Detach starts and RunDetached is.
const (
	lockDescriptor   = 3 // the pod's lock, held
	reportDescriptor = 4 // the write end of a pipe for one report
)

// report is the one message of a detached monitor: JSON, then end of file. No
// message means that it was killed.
type report struct {
	Error string `json:"error,omitempty"` // "" when the pod is up
}

// Detach starts a monitor that outlives the caller, waits until the pod is up
// and lets go of it. Argv is this program's command line for RunDetached.
// When the pod does not come up, or ctx ends before, nothing is left of it.
func (p *Pod) Detach(ctx context.Context, argv []string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return errors.Join(err, p.removeDir())
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/exe", argv[1:]...)
	cmd.Args = argv
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{p.lock, write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("start monitor: %w", err), p.removeDir())
	}
	defer p.lock.Close()
	unhook := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer unhook()
	data, err := io.ReadAll(read)
	if err != nil {
		return fmt.Errorf("hear from monitor: %w", err)
	}
	if len(data) == 0 {
		return errors.Join(fmt.Errorf("launch pod %q: its monitor was killed", p.Plan.Name), p.succeed())
	}
	var message report
	if err := json.Unmarshal(data, &message); err != nil {
		return fmt.Errorf("hear from monitor: %w", err)
	}
	if message.Error != "" {
		return errors.New(message.Error)
	}
	return p.refresh()
}

// succeed clears away after a monitor that was killed. The lock is ours as
// much as it was the monitor's.
func (p *Pod) succeed() error {
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return err
	}
	return p.takeDown(group, Exit{}, false)
}

// RunDetached is the life of a detached monitor: it runs the pod in that folder, whose lock it
// inherited, and reports once. Where nobody is there to hear it, because who started it has
// been killed, the pod goes on: `ps` shows it.
func RunDetached(ctx context.Context, dir string) error {
	pod := &Pod{Dir: dir, lock: os.NewFile(lockDescriptor, "lock")}
	out := os.NewFile(reportDescriptor, "report")
	syscall.CloseOnExec(lockDescriptor)
	syscall.CloseOnExec(reportDescriptor)
	tell := func(message report) error {
		return errors.Join(json.NewEncoder(out).Encode(message), out.Close())
	}
	if err := pod.reload(); err != nil {
		return tell(report{Error: err.Error()})
	}
	var told error
	ready := false
	_, err := pod.Run(ctx, true, func() error {
		ready = true
		told = tell(report{})
		return nil
	})
	if !ready && err != nil {
		return tell(report{Error: err.Error()})
	}
	return errors.Join(told, err)
}

func (p *Pod) reload() error {
	err := errors.Join(
		readJSON(filepath.Join(p.Dir, planFile), &p.Plan),
		readJSON(filepath.Join(p.Dir, stateFile), &p.State))
	if err != nil {
		return fmt.Errorf("read pod: %w", err)
	}
	return nil
}
