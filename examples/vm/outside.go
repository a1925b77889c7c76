package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
)

// outsideRole as base name of argv[0] makes the program the stager on this side.
const outsideRole = "outside"

// stopMargin is how much longer than the grace period a guest may take to stop.
const stopMargin = 30 * time.Second

// becomeOutside executes this program again, as the same process. Package pid1 has made a mount namespace for it, with
// which the roots vanish, whatever killed the process, and a pod's init, which ends here: the pod is in the guest.
func becomeOutside() error {
	err := syscall.Exec("/proc/self/exe", []string{outsideRole}, os.Environ())
	return fmt.Errorf("start again: %w", err)
}

// outside is the stager on this side of the virtual machine. It returns when the pod is over.
func outside(parent context.Context) error {
	// What becomeOutside has ended, before there are other children.
	for err := error(nil); err == nil || errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(-1, nil, 0, nil)
	}
	// qemu and virtiofsd die with the thread that started them: this one.
	runtime.LockOSThread()
	ready := readyPipe()
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	ctx, release := supervisor.CatchSignals(parent)
	defer release()
	s := &stager{log: slog.New(slog.NewTextHandler(messages, nil)), messages: messages, ready: ready}
	code, err := s.run(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", names.Program, err)
	case code != 0:
		return &callins.ExitError{Code: code}
	}
	return nil
}

// readyPipe returns the pipe by whose end of file the daemon knows that the pod is up, nil if
// it passed none. A Go program may have opened such a descriptor for itself by now; those are
// closed on exec.
func readyPipe() *os.File {
	for _, fd := range []int{names.ReadyDescriptor, names.OldReadyDescriptor} {
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			unix.CloseOnExec(fd)
			return os.NewFile(uintptr(fd), "ready")
		}
	}
	return nil
}

// stager is a pod on its way outside. A field is set by the phase that is named with
// it.
type stager struct {
	log      *slog.Logger
	messages io.Writer
	ready    *os.File

	undos   []func()      // to be called backwards
	plan    *plan.Pod     // decide
	config  machineConfig // decide
	uuid    string        // decide
	driver  string        // share: what mounts the roots
	machine *machine      // boot
	pod     *line.Channel // boot
	code    int           // follow
	failure error         // follow: why the pod's end was not a clean one
}

// run takes the pod through its life and leaves nothing behind.
func (s *stager) run(ctx context.Context) (int, error) {
	defer func() {
		for _, undo := range slices.Backward(s.undos) {
			undo()
		}
	}()
	for _, phase := range []func(context.Context) error{s.claim, s.decide, s.share, s.boot, s.listen, s.follow} {
		if err := phase(ctx); err != nil {
			if ctx.Err() != nil {
				return 0, nil // stopped on its way
			}
			return 1, err
		}
	}
	return s.code, s.failure
}

func (s *stager) undo(f func()) { s.undos = append(s.undos, f) }

// decide reads the manifest and plans what is done outside: the roots and the machine.
// The guest plans for itself what is done there.
func (s *stager) decide(context.Context) error {
	file, err := os.Open(names.Manifest)
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	defer file.Close()
	m, err := manifest.Read(file)
	if err != nil {
		return err
	}
	if s.plan, err = plan.Decide(m, guestSupport(), unionfs.NamesOf(unionfs.Drivers()), nil); err != nil {
		return err
	}
	if s.config, err = decideMachine(m, s.plan, runtime.NumCPU()); err != nil {
		return err
	}
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // without it the pod has a UUID of its own
	s.uuid = plan.PodUUID(string(cgroups))
	return nil
}

// boot starts the virtual machine and waits until its first process answers.
func (s *stager) boot(ctx context.Context) error {
	var err error
	for _, a := range accelerators("/dev/kvm", "/proc/cpuinfo") {
		s.log.Info("virtual machine", "processor", a.name, "memory", s.config.Memory, "processors", s.config.CPUs)
		if err = s.bootWith(ctx, a); err == nil || ctx.Err() != nil {
			return err
		}
		s.log.Warn("virtual machine does not boot", "processor", a.name, "error", err)
	}
	return err
}

func (s *stager) bootWith(ctx context.Context, a accelerator) error {
	m, err := startMachine(s.config, a, s.messages)
	if err != nil {
		return err
	}
	s.pod, err = m.line.Open(encode(request{
		Use: usePod, UUID: s.uuid, Driver: s.driver,
	}))
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, a.limit)
		err = s.await(limited, m, stateBooted)
		cancel()
	}
	if err != nil {
		m.kill()
		<-m.gone
		return err
	}
	s.machine = m
	copied := make(chan struct{})
	s.undo(func() { <-copied })
	s.undo(func() { m.kill(); <-m.gone })
	go func() {
		defer close(copied)
		_, _ = io.Copy(s.messages, s.pod.Reader(1)) // to the pod's end, or the guest's
	}()
	return nil
}

// await waits for the guest to reach a state.
func (s *stager) await(ctx context.Context, m *machine, want state) error {
	for {
		select {
		case text, ok := <-s.pod.Notes():
			var n note
			switch {
			case !ok:
				code, err := s.ended(m)
				if err == nil {
					err = fmt.Errorf("the guest has ended with status %d", code)
				}
				return err
			case json.Unmarshal(text, &n) == nil && n.State == want:
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest: %w", ctx.Err())
		}
	}
}

// ended returns, when the pod's channel is over, how the pod ended: as the guest says,
// or with the machine.
func (s *stager) ended(m *machine) (int, error) {
	<-s.pod.Done()
	text, err := s.pod.Result()
	if err != nil {
		m.kill()
		<-m.gone
		return 1, fmt.Errorf("%w unexpectedly: %w", errDied, m.err)
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return 1, fmt.Errorf("decode the guest's result: %w", err)
	}
	m.end()
	if r.Error != "" {
		return r.Code, errors.New(r.Error)
	}
	return r.Code, nil
}

// listen answers call-ins from here on.
func (s *stager) listen(context.Context) error {
	listener, err := listen(names.ControlSocket)
	if err != nil {
		return err
	}
	h := &hub{guest: s.machine.line, slots: make(chan struct{}, maxCalls)}
	s.undo(func() { listener.Close(); h.calls.wait() })
	go h.serve(listener)
	return nil
}

// follow follows the pod in the guest to its end.
func (s *stager) follow(ctx context.Context) error {
	for {
		select {
		case text, ok := <-s.pod.Notes():
			var n note
			switch {
			case !ok:
				s.code, s.failure = s.ended(s.machine)
				return nil
			case json.Unmarshal(text, &n) == nil && n.State == stateReady:
				s.reportReady()
			}
		case <-ctx.Done():
			s.stop()
			return nil
		}
	}
}

// reportReady reports to the daemon that the pod is up.
func (s *stager) reportReady() {
	if s.ready != nil {
		_ = s.ready.Close() // a pipe: nothing is held back; and a guest may say it twice
	}
}

// stop has the guest stop the pod, and waits for its end.
func (s *stager) stop() {
	limit := s.plan.Config.GracePeriod + stopMargin
	late := time.AfterFunc(limit, func() {
		s.log.Error("the guest does not stop; it is killed", "after", limit)
		s.machine.kill()
	})
	defer late.Stop()
	_ = s.pod.Note(encode(note{Stop: true})) // a line that is lost shows below
	s.code, s.failure = s.ended(s.machine)
}
