package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/names"
)

// The guest's first process plays the daemon there: it starts the pod's supervisor and
// the call-ins, each a process of this program, and relays.

// Roles of the program in the guest, as base names of argv[0].
const (
	podRole  = "pod"   // the supervisor, see pod.go
	callRole = "guest" // a call-in, see answer.go
)

// serveOutside does what the stager outside asks for until the pod is over.
func serveOutside() error {
	port, err := openLine(portName)
	if err != nil {
		return fmt.Errorf("open serial port: %w", err)
	}
	over := make(chan struct{})
	var once sync.Once
	var calls underWay
	l := line.New(port, line.EndB, func(ch *line.Channel, text []byte) {
		var req request
		switch err := json.Unmarshal(text, &req); {
		case err == nil && req.Use == useCall:
			calls.do(func() { answer(ch, req) })
		case err == nil && req.Use == usePod:
			once.Do(func() {
				servePod(ch, req)
				close(over)
			})
		default:
			refuse(ch, errors.New("the guest does not understand the request"))
		}
	})
	lost := make(chan error, 1)
	go func() { lost <- l.Serve() }()
	select {
	case <-over:
		calls.wait()
		return nil
	case err := <-lost:
		return errors.Join(errors.New("the serial port is lost"), err)
	}
}

// servePod runs the pod and reports outside.
func servePod(ch *line.Channel, req request) {
	_ = ch.Note(encode(note{State: stateBooted})) // a line that is lost ends the guest
	code, err := superviseIn(ch, req)
	r := result{Code: code}
	if err != nil {
		r = result{Code: 1, Error: inOneLine(err)}
	}
	_ = ch.Close(encode(r))
}

// superviseIn runs the supervisor to its end, and returns its exit code and the
// error that it has reported.
func superviseIn(ch *line.Channel, req request) (int, error) {
	messages, theirs, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	defer messages.Close()
	report, up, err := os.Pipe()
	if err != nil {
		return 1, errors.Join(err, theirs.Close())
	}
	defer report.Close()
	orders, stop, err := os.Pipe()
	if err != nil {
		return 1, errors.Join(err, theirs.Close(), up.Close())
	}
	defer stop.Close()
	cmd, err := supervisorCommand(req)
	if err == nil {
		cmd.Stdout, cmd.Stderr = theirs, theirs
		cmd.ExtraFiles = []*os.File{up, orders} // reportDescriptor, stopDescriptor
		err = cmd.Start()
	}
	theirs.Close()
	up.Close()
	orders.Close()
	if err != nil {
		return 1, fmt.Errorf("start supervisor: %w", err)
	}
	go stopOnRequest(ch, stop)
	reported := make(chan error, 1)
	go func() { reported <- readReport(ch, report) }()
	_, _ = io.Copy(ch.Writer(1), messages) // to the supervisor's end
	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return 1, err
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 1, fmt.Errorf("the supervisor was ended by signal %q", status.Signal())
	}
	return cmd.ProcessState.ExitCode(), <-reported
}

// stopOnRequest has the supervisor stop the pod when the stager outside asks for it.
func stopOnRequest(ch *line.Channel, stop io.Writer) {
	for text := range ch.Notes() {
		var n note
		if json.Unmarshal(text, &n) == nil && n.Stop {
			_, _ = stop.Write([]byte{1}) // the supervisor may have ended
		}
	}
}

// readReport reads what the supervisor reports, see reporter. It returns the
// reported error at the supervisor's end.
func readReport(ch *line.Channel, report io.Reader) error {
	var failure error
	for lines := bufio.NewScanner(report); lines.Scan(); {
		if text, failed := strings.CutPrefix(lines.Text(), reportError); failed {
			failure = errors.New(text)
		} else if lines.Text() == reportUp {
			_ = ch.Note(encode(note{State: stateReady})) // a line that is lost ends the guest
		}
	}
	return failure
}

// supervisorCommand is the supervisor, which has an init for the pod: in a mount namespace of its own, and in a cgroup
// that has the pod's UUID as its name.
func supervisorCommand(req request) (*exec.Cmd, error) {
	group := filepath.Join(names.CgroupDir, filepath.Base(req.UUID))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	fd, err := os.Open(group)
	if err != nil {
		return nil, err
	}
	// The file stays open for as long as the guest runs.
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{podRole, req.Driver}, Dir: "/",
		Env: []string{"HOME=/root"},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS,
			UseCgroupFD: true, CgroupFD: int(fd.Fd()),
		},
	}, nil
}
