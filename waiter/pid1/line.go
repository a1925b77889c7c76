package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
)

// line is the supervisor's line to the waiter. It implements boot.Waiter.
type line struct {
	lifeline, report *os.File
	namespaces       uintptr
}

// init keeps the supervisor's main goroutine on the process's first thread, as that of package waiter does.
func init() { //nolint:gochecknoinits // see above
	if os.Getenv(names.SupervisorVariable) != "" {
		runtime.LockOSThread()
	}
}

// takeLine returns the line if this process is the supervisor that wait has started, else nil.
// It is called once, before anything else opens descriptors.
func takeLine() (*line, error) {
	mark := os.Getenv(names.SupervisorVariable)
	if mark == "" {
		return nil, nil //nolint:nilnil // no line is an answer here
	}
	var lifeline, report int
	l := &line{}
	if _, err := fmt.Sscanf(mark, "%d,%d,%d", &lifeline, &report, &l.namespaces); err != nil {
		return nil, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	unix.CloseOnExec(lifeline)
	unix.CloseOnExec(report)
	l.lifeline, l.report = os.NewFile(uintptr(lifeline), "lifeline"), os.NewFile(uintptr(report), "report")
	return l, os.Unsetenv(names.SupervisorVariable)
}

// Settle implements boot.Waiter: wait was told the namespaces before it started the supervisor,
// so other ones are a mistake in the stager.
func (l *line) Settle(namespaces uintptr, _ *os.File) error {
	if namespaces != l.namespaces {
		return fmt.Errorf("supervisor runs in namespaces %#x, the pod wants %#x", l.namespaces, namespaces)
	}
	return nil
}

// Up implements boot.Waiter.
func (l *line) Up() error {
	_, err := l.report.Write([]byte{1})
	return errors.Join(err, l.report.Close())
}

// Watch implements boot.Waiter.
func (l *line) Watch(stop, lost func()) {
	// The lifeline's end, or an error, means that the waiter is gone.
	for order := make([]byte, 1); ; {
		if n, err := l.lifeline.Read(order); err != nil || n == 0 {
			break
		}
		stop()
	}
	if l.namespaces&unix.CLONE_NEWPID == 0 {
		stop()
		lost()
	}
	os.Exit(1)
}

var _ boot.Waiter = (*line)(nil)
