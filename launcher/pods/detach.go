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
	"slices"
	"syscall"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// controlDescriptor is a detached monitor's end of a pair of stream sockets; its starter has the
// other end. The monitor gets one byte with the pod's lock, held, when there is a pod; end of file says
// that there will be none. It answers with one report.
const controlDescriptor = 3

// report is the only message of a detached monitor: JSON, then end of file. End of file without a message means that
// the monitor was killed, or ended before RunDetached, as when its configuration is a pipe that the caller has read.
type report struct {
	Error       string      `json:"error,omitempty"`  // "" when the pod is up
	State       State       `json:"state,omitzero"`   // when the pod is up: a short pod may be deleted before it is read
	Output      []AppOutput `json:"output,omitempty"` // of a StartError, as NotExecuted
	NotExecuted int         `json:"notExecuted,omitempty"`
	// the monitor has not begun with the pod, so it has not deleted it either
	Left bool `json:"left,omitempty"`
}

// Monitor is a process that waits for its pod.
type Monitor struct {
	UUID string // the pod's

	process *os.Process
	control *os.File        // nil after Close and HandOver
	ended   <-chan struct{} // closed when the process has ended, and has been waited for
}

// StartMonitor starts the monitor of a pod that need not exist yet, with a new UUID. The process starts while the
// caller plans the pod, which saves the time of its start. The monitor outlives the caller. Argv is as for Detach.
// The caller calls HandOver, and Close in any case.
func (s *Store) StartMonitor(argv []string) (*Monitor, error) {
	id := uuid.NewString()
	m, err := startMonitor(append(slices.Clone(argv), s.podDir(id)))
	if err != nil {
		return nil, err
	}
	m.UUID = id
	return m, nil
}

func startMonitor(argv []string) (m *Monitor, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start monitor: %w", err)
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	m = &Monitor{control: os.NewFile(uintptr(pair[0]), "monitor")}
	other := os.NewFile(uintptr(pair[1]), "monitor's end")
	defer other.Close()
	cmd := exec.Command("/proc/self/exe", argv[1:]...)
	cmd.Args = argv
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{other}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, m.control.Close())
	}
	m.process = cmd.Process
	m.wait()
	return m, nil
}

// wait waits for the process in the background. The monitor ends with its pod, long after HandOver: a caller that lives
// as long would be left with a zombie.
func (m *Monitor) wait() {
	ended := make(chan struct{})
	m.ended = ended
	go func() {
		defer close(ended)
		_, _ = m.process.Wait() // the only error is that it has been waited for
	}()
}

// Close ends the monitor unless it has got a pod. The monitor may not have begun to wait for one: it is killed.
func (m *Monitor) Close() {
	if m.control == nil {
		return
	}
	_ = m.control.Close()
	m.control = nil
	_ = m.process.Kill() // it may have ended already
	<-m.ended
}

// HandOver makes the stager's root, while the process may still be starting, and makes the process the pod's monitor.
// It returns when the pod is up. If the pod does not start, or ctx ends before, the pod is deleted and an error
// returned.
func (m *Monitor) HandOver(ctx context.Context, k *Keeper) error {
	control := m.control
	m.control = nil
	defer control.Close()
	defer k.lock.Close()
	unhook := context.AfterFunc(ctx, func() { _ = m.process.Signal(syscall.SIGTERM) })
	defer unhook()
	if err := k.makeFiles(); err != nil {
		return k.takeOver(err)
	}
	err := unix.Sendmsg(int(control.Fd()), []byte{0}, unix.UnixRights(int(k.lock.Fd())), nil, unix.MSG_NOSIGNAL)
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return k.takeOver(fmt.Errorf("pass the lock to the monitor: %w", err))
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(control)
	}
	// A monitor that ends before it has read the byte resets the connection.
	if lost := errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || err == nil && len(data) == 0; lost {
		return k.takeOver(errors.New("the monitor ended without a report: it was killed, or could not read the " +
			"configuration again"))
	}
	if err != nil {
		return fmt.Errorf("read from monitor: %w", err)
	}
	return k.accept(data)
}

// accept takes the report of the pod's monitor, which is up or has failed.
func (k *Keeper) accept(data []byte) error {
	var message report
	if err := json.Unmarshal(data, &message); err != nil {
		return fmt.Errorf("read from monitor: %w", err)
	}
	if message.Left {
		return k.takeOver(errors.New(message.Error))
	}
	if message.Error != "" {
		return &StartError{Err: errors.New(message.Error), Output: message.Output, NotExecuted: message.NotExecuted}
	}
	k.State = message.State
	return nil
}

// Detach starts a monitor that outlives the caller, and returns when the pod is up, see HandOver. Argv is this
// program's command line for RunDetached, without the pod's folder, which is added.
func (k *Keeper) Detach(ctx context.Context, argv []string) error {
	m, err := k.Prepare(argv)
	if err != nil {
		return err
	}
	return m.HandOver(ctx, k)
}

// Prepare does what Detach can do before the pod's volumes are there, and starts the monitor for HandOver. Argv is as
// for Detach. After an error the pod is deleted.
func (k *Keeper) Prepare(argv []string) (*Monitor, error) {
	m, err := startMonitor(append(slices.Clone(argv), k.Dir))
	if err != nil {
		return nil, errors.Join(err, k.removeDir())
	}
	if err := k.makeRoot(); err != nil {
		m.Close()
		return nil, errors.Join(err, k.removeDir())
	}
	return m, nil
}

// takeOver deletes a pod that its monitor does not start, for the reason err, and returns the reason. This process has
// the pod's lock, as the monitor had.
func (k *Keeper) takeOver(err error) error {
	err = fmt.Errorf("launch pod %q: %w", k.Plan.Name, err)
	_ = jsonfile.Read(filepath.Join(k.Dir, stateFile), &k.State) // what the monitor has recorded, if it came so far
	group, openErr := cgroups.Open(k.Plan.Cgroup)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(err, k.takeDown(group, killed(), deletePod))
}

// Discard deletes a pod that has been made and not been started, with the cgroup that its maker may have made for it.
func (k *Keeper) Discard() error {
	group, err := cgroups.Open(k.Plan.Cgroup)
	if err == nil {
		err = group.Remove()
	}
	return errors.Join(err, k.removeDir())
}

// RunDetached is the main function of a detached monitor: it runs the pod in that folder when it gets the pod's
// lock, and reports once. It returns nil if it gets none. If the process that started it has been
// killed and cannot read the report, the pod keeps running and `ps` shows it. connector is as in
// Store; lastLines is the pod's LastLines.
func RunDetached(ctx context.Context, dir string, connector *networks.Connector,
	lastLines func(*Pod) []AppOutput,
) error {
	syscall.CloseOnExec(controlDescriptor)
	out := os.NewFile(controlDescriptor, "report")
	send := func(message report) error {
		return errors.Join(json.NewEncoder(out).Encode(message), out.Close())
	}
	lock, err := receiveLock()
	if err != nil {
		return send(report{Error: err.Error(), Left: true})
	}
	if lock == nil {
		return nil
	}
	pod := &Keeper{Pod: Pod{Dir: dir}, lock: lock, rooted: true, connector: connector, LastLines: lastLines}
	if err := pod.reload(); err != nil {
		return send(report{Error: err.Error(), Left: true})
	}
	var sent error
	ready := false
	_, err = pod.Run(ctx, !pod.Plan.Remove, func() error {
		ready = true
		sent = send(report{State: pod.State})
		return nil
	})
	if !ready && err != nil {
		return send(reportOf(err))
	}
	return errors.Join(sent, err)
}

// reportOf reports why a pod has not started.
func reportOf(err error) report {
	message := report{Error: err.Error()}
	if failed := (*StartError)(nil); errors.As(err, &failed) {
		message.Output, message.NotExecuted = failed.Output, failed.NotExecuted
	}
	return message
}

// receiveLock waits for the lock of the pod; nil for none.
func receiveLock() (*os.File, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	var n, space int
	for {
		var err error
		n, space, _, _, err = unix.Recvmsg(controlDescriptor, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return nil, fmt.Errorf("wait for the pod: %w", err)
		}
	}
	if n == 0 {
		return nil, nil
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:space]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), lockFile), nil
		}
	}
	return nil, errors.New("wait for the pod: the lock was not passed")
}

func (k *Keeper) reload() error {
	err := errors.Join(
		jsonfile.Read(filepath.Join(k.Dir, planFile), &k.Plan),
		jsonfile.Read(filepath.Join(k.Dir, stateFile), &k.State))
	if err != nil {
		return fmt.Errorf("read pod: %w", err)
	}
	return nil
}
