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
	"kurma.io/stager/launcher/networks"
)

// Descriptors of a detached monitor, which Detach starts and whose main function is RunDetached.
const (
	lockDescriptor   = 3 // the pod's lock, held
	reportDescriptor = 4 // the write end of a pipe for one report
)

// report is the only message of a detached monitor: JSON, then end of file. End of file
// without a message means that the monitor was killed.
type report struct {
	Error  string `json:"error,omitempty"`  // "" when the pod is up
	Output string `json:"output,omitempty"` // of a StartError
}

// Detach starts a monitor that outlives the caller, and returns when the pod is up.
// Argv is this program's command line for RunDetached. If the pod does not start, or ctx
// ends before, the pod is deleted and an error returned.
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
		return fmt.Errorf("read from monitor: %w", err)
	}
	if len(data) == 0 {
		return errors.Join(fmt.Errorf("launch pod %q: its monitor was killed", p.Plan.Name), p.takeOver())
	}
	var message report
	if err := json.Unmarshal(data, &message); err != nil {
		return fmt.Errorf("read from monitor: %w", err)
	}
	if message.Error != "" {
		return &StartError{Err: errors.New(message.Error), Output: message.Output}
	}
	return p.refresh()
}

// takeOver deletes the pod of a monitor that was killed. This process has the pod's lock,
// as the monitor had.
func (p *Pod) takeOver() error {
	_ = readJSON(filepath.Join(p.Dir, stateFile), &p.State) // what the monitor has recorded, if it came so far
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return err
	}
	return p.takeDown(group, killed(), deletePod)
}

// RunDetached is the main function of a detached monitor: it runs the pod in that folder,
// whose lock it inherited, and reports once. If the process that started it has been
// killed and cannot read the report, the pod keeps running and `ps` shows it. connector is as in
// Store; lastLines is the pod's LastLines.
func RunDetached(ctx context.Context, dir string, connector *networks.Connector, lastLines func(*Pod) string) error {
	pod := &Pod{Dir: dir, lock: os.NewFile(lockDescriptor, "lock"), connector: connector, LastLines: lastLines}
	out := os.NewFile(reportDescriptor, "report")
	syscall.CloseOnExec(lockDescriptor)
	syscall.CloseOnExec(reportDescriptor)
	send := func(message report) error {
		return errors.Join(json.NewEncoder(out).Encode(message), out.Close())
	}
	if err := pod.reload(); err != nil {
		return send(report{Error: err.Error()})
	}
	var sent error
	ready := false
	_, err := pod.Run(ctx, !pod.Plan.Remove, func() error {
		ready = true
		sent = send(report{})
		return nil
	})
	if !ready && err != nil {
		message := report{Error: err.Error()}
		if failed := (*StartError)(nil); errors.As(err, &failed) {
			message.Output = failed.Output
		}
		return send(message)
	}
	return errors.Join(sent, err)
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
